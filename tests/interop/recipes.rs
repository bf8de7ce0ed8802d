//! The recipes in `examples/`, each run as far as this machine can run it: on lock files, with programs in place of the jobs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::dlock::{DLOCK, Running};
use crate::support::postgres::Postgres;
use crate::support::rendezvous::Gate;
use crate::support::scratch::Scratch;

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(recipe(name)).unwrap()
}

/// A host on which the recipes can run: dlock and the jobs are in its path, and its locks are files of this test.
struct Host {
    scratch: Scratch,
}

impl Host {
    fn new(jobs: &[&str]) -> Self {
        let scratch = Scratch::new();
        symlink(*DLOCK, scratch.path("dlock")).unwrap();
        for job in jobs {
            scratch.script(job, "#!/bin/sh\necho \"${0##*/} $*\" >>\"${0%/*}/done\"\n");
        }
        Self { scratch }
    }

    /// A shell that runs this line as cron, a CI system or a user would.
    fn shell(&self, line: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-e", "-c", line]).current_dir(self.scratch.root());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DLOCK_")) {
            shell.env_remove(name);
        }
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.scratch.root().display());
        shell.env("PATH", path).env("DLOCK_BACKEND", self.scratch.file_url());
        shell
    }

    #[track_caller]
    fn run(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }

    /// Runs the line, which must succeed without a word on standard error.
    #[track_caller]
    fn works(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Which jobs have run, with their arguments.
    fn done(&self) -> Vec<String> {
        let done = fs::read_to_string(self.scratch.path("done")).unwrap_or_default();
        done.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// A run that holds this lock until the gate opens.
    fn holder(&self, key: &str, gate: &Gate) -> Running {
        let dlock = self.scratch.dlock().run(key).backend(self.scratch.file_url());
        let running = dlock.args(["--reason", "a \"test\""]).shell(format!("echo held; {}", gate.wait())).spawn();
        running.wait_stdout("held");
        running
    }

    fn gate(&self) -> Gate {
        Gate::new(self.scratch.path("gate"))
    }
}

/// The jobs of the crontab: the variables are for every line, and a line begins with five fields of time.
fn crontab() -> Vec<String> {
    let text = text("crontab");
    let lines = text.lines().filter(|line| {
        !line.is_empty() && !line.starts_with('#') && !line.starts_with("DLOCK_") && !line.starts_with("PATH=")
    });
    lines
        .map(|line| {
            assert!(!line.contains('%'), "cron makes a newline of a percent sign: {line}");
            let job = (0..5).fold(line, |rest, _| rest.trim_start().split_once(' ').unwrap().1);
            job.trim_start().to_owned()
        })
        .collect()
}

#[test]
fn every_line_of_the_crontab_runs_its_job() {
    let jobs = crontab();
    assert_eq!(jobs.len(), 5);
    for (line, job) in jobs.iter().zip(["backup.sh", "report.sh", "vacuum.sh", "import.sh", "sync.sh"]) {
        let host = Host::new(&["backup.sh", "report.sh", "vacuum.sh", "import.sh", "sync.sh", "curl"]);
        assert_eq!(host.works(line), "", "cron would mail it");
        assert_eq!(host.done()[0], job);
    }
}

#[test]
fn hosts_that_skip_their_turn_say_nothing_and_tell_no_monitor() {
    for (line, key) in crontab().iter().zip(["backup", "report", "vacuum", "import", "sync"]) {
        if !line.contains(" -n ") {
            continue;
        }
        let host = Host::new(&["backup.sh", "import.sh", "sync.sh", "curl"]);
        let gate = host.gate();
        let holder = host.holder(key, &gate);
        assert_eq!(host.works(line), "");
        assert_eq!(host.done(), Vec::<String>::new(), "{line}");
        gate.open();
        holder.wait().success();
    }
}

#[test]
fn the_variables_of_the_crontab_are_dlocks() {
    let host = Host::new(&[]);
    let page = host.works("dlock help run");
    let text = text("crontab");
    let names: Vec<&str> =
        text.lines().filter(|line| line.starts_with("DLOCK_")).filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| page.contains(name)), "{names:?}");
}

#[test]
fn a_script_that_locks_itself_runs_once() {
    let host = Host::new(&[]);
    let script = recipe("self-locking.sh").display().to_string();
    assert!(host.works(&script).starts_with("running under the lock nightly, token "));
    let gate = host.gate();
    let holder = host.holder("nightly", &gate);
    let second = host.run(&script);
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    assert!(second.stdout.is_empty());
    gate.open();
    holder.wait().success();
}

#[test]
fn systemd_understands_the_units() {
    let scratch = Scratch::new();
    let units = fs::read_dir(recipe("systemd")).unwrap().map(|unit| unit.unwrap().file_name().into_string().unwrap());
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for unit in units {
        let text = text(&format!("systemd/{unit}")).replace("ExecStart=dlock", &format!("ExecStart={}", *DLOCK));
        verify.arg(scratch.file(&unit, text));
    }
    assert_eq!(verify.get_args().count(), 4);
    let output = verify.output().expect("systemd-analyze: apt-get install systemd");
    // What it does not understand it only mentions.
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// What this program of Python prints about the YAML file of this name, line by line; the documents are in `all`.
fn of_yaml(name: &str, program: &str) -> Vec<String> {
    let load = "import sys, yaml, shlex\nall = list(yaml.safe_load_all(open(sys.argv[1])))\n";
    let output = Command::new("python3").args(["-c", &format!("{load}{program}")]).arg(recipe(name)).output().unwrap();
    assert!(output.status.success(), "apt-get install python3-yaml? {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_steps_of_ci_systems_deploy() {
    let github = "for job in all[0]['jobs'].values():\n for step in job['steps']:\n  if 'run' in step: print(step['run'].strip())";
    let gitlab = "for job in all[0].values():\n for line in job['script']: print(line)";
    let jenkins = text("Jenkinsfile");
    let jenkins = jenkins.lines().filter_map(|line| line.trim().strip_prefix("sh '")?.strip_suffix('\''));
    let systems =
        [of_yaml("github-actions.yml", github), of_yaml("gitlab-ci.yml", gitlab), jenkins.map(str::to_owned).collect()];
    for steps in systems {
        let host = Host::new(&["deploy.sh"]);
        // dlock is here already.
        for step in steps.iter().filter(|step| !step.starts_with("curl ")) {
            host.works(step);
        }
        assert_eq!(host.done(), ["deploy.sh"], "{steps:?}");
    }
}

#[test]
fn the_containers_of_kubernetes_run_their_jobs() {
    let program = "pods = [all[0]['spec']['template'], all[1]['spec']['jobTemplate']['spec']['template']]\n\
                   for pod in pods:\n spec = pod['spec']\n for one in spec.get('initContainers', []) + spec['containers']:\n  \
                   if 'command' in one: print(shlex.join(one['command']))";
    let commands = of_yaml("kubernetes.yml", program);
    assert_eq!(commands.len(), 2);
    let host = Host::new(&["migrate", "report"]);
    for command in commands {
        host.works(&command);
    }
    assert_eq!(host.done(), ["migrate", "report"]);
}

#[test]
fn terraform_applies_under_the_lock_of_its_workspace() {
    let host = Host::new(&[]);
    host.scratch.script("terraform", "#!/bin/sh\necho \"$DLOCK_KEY: $*\"\n");
    let script = recipe("terraform.sh").display().to_string();
    for (line, key) in [(script.clone(), "default"), (format!("TF_WORKSPACE=blue {script}"), "blue")] {
        assert_eq!(host.works(&line), format!("terraform-{key}: apply -input=false -auto-approve\n"));
    }
}

#[test]
fn metrics_say_how_long_locks_have_been_held() {
    let host = Host::new(&[]);
    let gate = host.gate();
    host.works("dlock run -k 'a \"done\" key' --once-per 1h -- true");
    let holder = host.holder("a \"quoted\" key", &gate);
    let metrics = host.works(&recipe("metrics.sh").display().to_string());
    let held = metrics.lines().find_map(|line| line.strip_prefix(r#"dlock_held_seconds{key="a \"quoted\" key"} "#));
    let held: f64 = held.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
    assert!((0.0..600.0).contains(&held), "{metrics}");
    assert!(metrics.lines().any(|line| line == r#"dlock_waiting{key="a \"quoted\" key"} 0"#), "{metrics}");
    let done =
        metrics.lines().find_map(|line| line.strip_prefix(r#"dlock_last_success_seconds{key="a \"done\" key"} "#));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(done.and_then(|done| done.parse().ok()).is_some_and(|done: u64| done.abs_diff(now) < 600), "{metrics}");
    gate.open();
    holder.wait().success();
    // What cannot be asked is no lock that is free.
    let outage = host.run(&format!("DLOCK_BACKEND=redis://127.0.0.1:1 {}", recipe("metrics.sh").display()));
    assert_eq!(outage.status.code(), Some(69), "{outage:?}");
    assert!(String::from_utf8_lossy(&outage.stdout).ends_with("\ndlock_up 0\n"), "{outage:?}");
}

#[test]
fn the_nagios_check_tells_a_job_that_was_not_done_from_an_outage() {
    let host = Host::new(&[]);
    let text = text("README.md");
    let line = text.lines().find_map(|line| line.strip_prefix("command[nightly] = ")).unwrap();
    let check = |url: &str| host.run(&line.replace("redis://locks/", url)).status.code();
    let url = host.scratch.file_url();
    assert_eq!(check(&url), Some(2));
    host.works(&format!("dlock run -b '{url}' -k nightly --once-per 1d -- true"));
    assert_eq!((check(&url), check("redis://127.0.0.1:1")), (Some(0), Some(3)));
}

#[test]
fn the_alerts_name_metrics_that_there_are() {
    let (alerts, script) = (text("alerts.yml"), text("metrics.sh"));
    for name in alerts.split(|one: char| !one.is_alphanumeric() && one != '_').filter(|word| word.starts_with("dlock_"))
    {
        assert!(script.contains(&format!("# TYPE {name} gauge")), "{name}");
    }
}

#[test]
fn metrics_say_how_a_job_went_and_a_host_that_skips_it_leaves_them_as_they_are() {
    let host = Host::new(&[]);
    let script = recipe("job-metrics.sh").display().to_string();
    let file = host.scratch.path("dlock_a__quoted__key.prom");
    let run = |words: &str| host.run(&format!("export TEXTFILES=$PWD; {script} 'a \"quoted\" key' {words}"));
    assert_eq!(run("-- sh -c 'exit 3'").status.code(), Some(3));
    let metrics = fs::read_to_string(&file).unwrap();
    for (name, expected) in [("exit_code", 3.0..=3.0), ("waited_seconds", 0.0..=60.0), ("run_seconds", 0.0..=60.0)] {
        let begins = format!(r#"dlock_job_{name}{{key="a \"quoted\" key"}} "#);
        let value = metrics.lines().find_map(|line| line.strip_prefix(&begins)?.parse().ok());
        assert!(value.is_some_and(|value: f64| expected.contains(&value)), "{name}: {metrics}");
    }
    assert_eq!(metrics.lines().count(), 8, "{metrics}");
    let gate = host.gate();
    let holder = host.holder("a \"quoted\" key", &gate);
    assert_eq!(run("-q -n -E 0 -- false").status.code(), Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), metrics);
    assert!(!host.scratch.path("dlock_a__quoted__key.prom.new").exists());
    gate.open();
    holder.wait().success();
}

#[test]
fn the_fence_of_postgres_refuses_an_earlier_holder() {
    let (host, postgres) = (Host::new(&[]), Postgres::start());
    let psql = |sql: &str| {
        let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", postgres.port());
        host.run(&format!("psql -X -q -v ON_ERROR_STOP=1 '{url}' {sql}"))
    };
    let made = psql(&format!("-f {}", recipe("fencing.sql").display()));
    assert!(made.status.success(), "{made:?}");
    for (token, passes) in [(7, true), (7, true), (9, true), (8, false), (9, true)] {
        let output = psql(&format!("-c \"SELECT fence('import', {token})\""));
        assert_eq!(output.status.success(), passes, "{token}: {output:?}");
    }
    let late = psql("-c \"SELECT fence('import', 8)\"");
    assert!(String::from_utf8_lossy(&late.stderr).contains("token 8 is outdated"), "{late:?}");
}

#[test]
fn every_recipe_is_listed() {
    let list = text("README.md");
    let folder = |name: &str| fs::read_dir(recipe(name)).unwrap().map(|entry| entry.unwrap().path());
    for path in folder("").chain(folder("systemd")).filter(|path| path.is_file()) {
        let name = path.strip_prefix(recipe("")).unwrap().display().to_string();
        assert!(name == "README.md" || list.contains(&format!("]({name})")), "{name} is not listed");
    }
}
