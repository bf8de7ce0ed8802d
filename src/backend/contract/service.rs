/*!
A lock service: what a URL stands for.
*/

use std::fmt;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Contender;
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::meeting::records::{RecordedBarrier, RecordedLatch, Records};
use crate::backend::meeting::{Barrier, Latch, Meeting};
use crate::backend::net::tls::TlsFiles;
use crate::backend::survey::{Kind, Survey};
use crate::key::Namespace;

/// The user's settings for the connection to the servers, in addition to the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Certificates and keys.
    pub tls: TlsFiles,
    /// Number of replicas that must confirm every grant and renewal; 0 for none.
    pub replicas: u32,
    /// `true` if servers that could forget a fencing counter are refused.
    pub strict_fencing: bool,
}

/// The reason why there is no latch or barrier without records.
const NO_RECORDS: &str = "this service keeps no records";

/// A lock service, as given by a URL.
pub(crate) trait Service: fmt::Debug {
    /// Returns a contender for `claim`. Nothing is sent, and nothing connects yet.
    fn contend(&self, claim: Claim) -> Box<dyn Contender>;

    /// Returns the records of the latch or barrier of `meeting`; `None` if the service makes these without records.
    /// Nothing is sent, and nothing connects yet.
    fn records(&self, _meeting: Meeting, _kind: Kind) -> Option<Box<dyn Records>> {
        None
    }

    /// Returns the latch of `meeting`, or the reason why there is none here. Nothing is sent, and nothing connects yet.
    fn latch(&self, meeting: Meeting) -> Result<Box<dyn Latch>, &'static str> {
        let records = self.records(meeting, Kind::Latch).ok_or(NO_RECORDS)?;
        Ok(Box::new(RecordedLatch(records)))
    }

    /// Returns the barrier of `meeting` for this many `parties`, or the reason why there is none. Nothing connects yet.
    fn barrier(&self, meeting: Meeting, parties: u32) -> Result<Box<dyn Barrier>, &'static str> {
        let records = self.records(meeting, Kind::Barrier).ok_or(NO_RECORDS)?;
        Ok(Box::new(RecordedBarrier::new(records, parties)))
    }

    /// Returns a survey of the locks in this namespace. Nothing is sent, and nothing connects yet.
    fn survey(&self, namespace: Namespace) -> Box<dyn Survey>;

    /// Returns the probes that check whether this service keeps its promises to runs with these settings. Nothing is
    /// sent, and nothing connects yet.
    fn probes(&self, parameters: CheckParameters) -> Box<dyn Probes>;
}
