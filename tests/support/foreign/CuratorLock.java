import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Curator's {@code InterProcessMutex}, driven by the lines that {@code driver.py} defines. */
public final class CuratorLock extends InterProcessMutex {
    private final CuratorFramework client;

    private CuratorLock(CuratorFramework client, String path) {
        super(client, path);
        this.client = client;
    }

    private String held() throws Exception {
        return "held " + client.checkExists().forPath(getLockPath()).getCzxid();
    }

    private String answer(String request) throws Exception {
        switch (request) {
            case "acquire":
                acquire();
                return held();
            case "try":
                return acquire(0, TimeUnit.SECONDS) ? held() : "busy";
            case "release":
                release();
                return "released";
            case "owned":
                return isAcquiredInThisProcess() ? "yes" : "no";
            default:
                throw new IllegalArgumentException(request);
        }
    }

    public static void main(String[] args) throws Exception {
        int session = (int) (Double.parseDouble(args[2]) * 1000);
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], session, 5000, new RetryOneTime(50))) {
            client.start();
            client.blockUntilConnected();
            CuratorLock lock = new CuratorLock(client, args[1]);
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
