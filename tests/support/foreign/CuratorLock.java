import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.data.Stat;

/**
 * Curator's {@code InterProcessMutex}, or one side of its {@code InterProcessReadWriteLock}, driven by the lines that
 * {@code driver.py} defines.
 */
public final class CuratorLock {
    private final CuratorFramework client;
    private final String path;
    private final InterProcessMutex lock;

    private CuratorLock(CuratorFramework client, String kind, String path) {
        this.client = client;
        this.path = path;
        switch (kind) {
            case "mutex":
                lock = new InterProcessMutex(client, path);
                break;
            case "read":
                lock = new InterProcessReadWriteLock(client, path).readLock();
                break;
            case "write":
                lock = new InterProcessReadWriteLock(client, path).writeLock();
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** This session has no other node there. */
    private String held() throws Exception {
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        for (String child : client.getChildren().forPath(path)) {
            Stat stat = client.checkExists().forPath(path + "/" + child);
            if (stat != null && stat.getEphemeralOwner() == session) {
                return "held " + stat.getCzxid();
            }
        }
        throw new IllegalStateException("it has no node");
    }

    private String answer(String request) throws Exception {
        switch (request) {
            case "acquire":
                lock.acquire();
                return held();
            case "try":
                return lock.acquire(0, TimeUnit.SECONDS) ? held() : "busy";
            case "release":
                lock.release();
                return "released";
            case "owned":
                return lock.isAcquiredInThisProcess() ? "yes" : "no";
            default:
                throw new IllegalArgumentException(request);
        }
    }

    public static void main(String[] args) throws Exception {
        int session = (int) (Double.parseDouble(args[3]) * 1000);
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[1], session, 5000, new RetryOneTime(50))) {
            client.start();
            client.blockUntilConnected();
            CuratorLock lock = new CuratorLock(client, args[0], args[2]);
            BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String request = requests.readLine(); request != null; request = requests.readLine()) {
                try {
                    System.out.println(lock.answer(request));
                } catch (Exception error) {
                    String text = String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
                    System.out.println("error " + error.getClass().getSimpleName() + ": " + text);
                }
            }
        }
    }
}
