/*!
`dlock check`: tests locks at a backend, measures how fast it answers, and reports what could make locks unsafe.
*/

mod host;
mod trial;

use std::collections::BTreeSet;

use self::host::{host, quota};
use self::trial::{Trial, latency};
use crate::backend::contract::probing::{CheckParameters, Finding, Probes, Verdict};
use crate::backend::contract::service::Service;
use crate::backend::error::ErrorKind;
use crate::command::session::{exit_of, play, refuse, service};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::report::event::{Event, Lack, Look, Step};
use crate::report::{Report, picture};
use crate::schema;
use crate::settings::CheckSettings;
use crate::supervise::signals::Signals;

/// The settings of a check, and its findings so far.
struct Check<'a> {
    settings: &'a CheckSettings,
    service: Box<dyn Service>,
    probes: Box<dyn Probes>,
    /// The lock under trial, as long as the service may still have something of it.
    trial: Option<Trial>,
    findings: Vec<Finding>,
    /// Durations of the renewals, in microseconds.
    samples: Vec<u64>,
    /// `true` if the findings name more than one server.
    has_several: bool,
    /// The failure with which a run would end.
    failure: Option<ErrorKind>,
}

/// Checks the backend; returns success if locks work there.
pub(crate) fn check(settings: &CheckSettings) -> Exit {
    let report = &Report::new(settings.verbosity);
    let opened = Signals::block()
        .map_err(|error| {
            let reason = Lack::System(error.to_string());
            Failure::new(Exit::Unavailable, Event::Lacking { step: Step::Signals, reason })
        })
        .and_then(|signals| Ok((signals, service(&settings.connection, settings.unknown.as_ref(), report)?)));
    let (signals, service) = match opened {
        Ok(opened) => opened,
        Err(failure) => return refuse(report, &failure),
    };
    if !settings.connection.chosen {
        report.tell(&Event::Look(Look::NoBackendToCheck));
    }
    play(report, signals, |mut signals| async move {
        let mut check = Check::new(settings, service);
        let outcome = tokio::select! {
            biased;
            signal = crate::command::session::told_to_stop(&mut signals) => Ok(Some(signal)),
            done = check.run() => done.map(|()| None),
        };
        check.tidy().await;
        match outcome? {
            Some(signal) => Ok(Exit::Signal(signal)),
            None => check.end(report),
        }
    })
}

impl<'a> Check<'a> {
    fn new(settings: &'a CheckSettings, service: Box<dyn Service>) -> Self {
        let parameters = CheckParameters { namespace: settings.connection.namespace.clone(), ttl: settings.ttl };
        Self {
            settings,
            probes: service.probes(parameters),
            service,
            trial: None,
            findings: Vec::new(),
            samples: Vec::new(),
            has_several: false,
            failure: None,
        }
    }

    /// Makes all probes that can be made, one after the other.
    async fn run(&mut self) -> Result<(), Failure> {
        if self.is_drawn() {
            let place = self.settings.connection.target.to_string();
            output::print(picture::checking(&place, &self.settings.origin).as_bytes())?;
        }
        self.note([host()])?;
        if self.settings.connection.target.has_lease() {
            self.note(quota(self.settings.ttl))?;
        }
        let (met, failure) = self.probes.meet().await;
        let servers: BTreeSet<&String> = met.iter().filter_map(|finding| finding.server.as_ref()).collect();
        self.has_several = servers.len() > 1;
        self.note(met)?;
        if let Some(kind) = failure {
            self.failure = self.failure.or(Some(kind));
            return self.note([Finding::new("lock", Verdict::Skip, "not tried, because of what failed above")]);
        }
        let warnings = self.try_lock().await?;
        let examined = self.probes.examine(&warnings).await;
        self.note(examined)
    }

    /// Takes a lock and gives it back; returns the warnings of its contenders.
    async fn try_lock(&mut self) -> Result<Vec<String>, Failure> {
        if self.settings.connection.target.is_one_lock() {
            let text = "every key there is the same lock: to try it would keep others out";
            self.note([Finding::new("lock", Verdict::Skip, text)])?;
            return Ok(Vec::new());
        }
        let trial = Trial::new(self.settings, self.service.as_ref(), self.probes.as_mut()).await?;
        let trial = self.trial.insert(trial);
        let found = trial.run(&mut self.samples).await;
        let warnings = trial.warnings();
        self.note([found])?;
        self.tidy().await;
        let latency = latency(&self.samples, self.settings.ttl);
        self.note(latency)?;
        Ok(warnings)
    }

    /// Gives back what a trial lock has left at the service.
    async fn tidy(&mut self) {
        if let Some(mut trial) = self.trial.take() {
            trial.give_back().await;
            trial.clean(self.probes.as_mut()).await;
        }
    }

    /// Returns `true` if findings are shown as they come.
    fn is_drawn(&self) -> bool {
        !self.settings.json && !self.settings.is_silent
    }

    fn note(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<(), Failure> {
        for finding in findings {
            if let Verdict::Fail(kind) = finding.verdict {
                self.failure = self.failure.or(Some(kind));
            }
            if self.is_drawn() {
                let mut drawn = finding.clone();
                if finding.probe == "latency" && output::is_terminal_of_utf8() {
                    drawn.text = format!("{}   {}", drawn.text, picture::bars(&self.samples));
                }
                output::print(picture::finding(&drawn, self.has_several).as_bytes())?;
            }
            self.findings.push(finding);
        }
        Ok(())
    }

    /// Prints the document, counts the findings, and returns dlock's exit.
    fn end(&self, report: &Report) -> Result<Exit, Failure> {
        let Self { settings, findings, samples, .. } = self;
        if settings.json {
            let place = settings.connection.target.to_string();
            output::print(schema::checked(&place, &settings.origin, findings, samples).as_bytes())?;
        }
        let count = |is: fn(&Verdict) -> bool| findings.iter().filter(|finding| is(&finding.verdict)).count();
        let failures = count(|verdict| matches!(verdict, Verdict::Fail(_)));
        let warnings = count(|verdict| *verdict == Verdict::Warn);
        if failures + warnings > 0 {
            report.tell(&Event::Look(Look::Checked { failures, warnings }));
        }
        Ok(self.failure.map_or(Exit::Success, exit_of))
    }
}
