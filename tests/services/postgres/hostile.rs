//! Servers that are no PostgreSQL, or lie as one.

use crate::services::databases::hostile::{self, Said, are_given_up_in_time};

#[test]
fn servers_that_lie_are_given_up_in_time() {
    are_given_up_in_time::<Lie>();
}

/// What a liar says once it is spoken to.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A message of 4 GiB, and its bytes without end.
    HugeMessage,
    /// A row without end, after a login.
    HugeRow,
    /// Notices without end, after a login.
    Notices,
    /// Parameters without end, instead of the end of a login.
    Parameters,
    /// Rows of one byte without end, as the answer to a request.
    Rows,
    /// A request for the password in clear text.
    ClearText,
    /// Requests for a password without end.
    Authentication,
    /// A way of logging in that there is not.
    UnknownMethod,
    /// A round of SCRAM with two thousand million iterations.
    Iterations,
    /// An error with a long text that is not for terminals.
    Failure,
    /// An answer with a row of another form.
    OtherRow,
    /// That the lock is ours, with a token that cannot be.
    NoToken,
    /// Yes to TLS, and then an answer in plain text.
    PlainAfterYes,
    /// The end of each answer, and none of it.
    Nothing,
}

impl hostile::Lie for Lie {
    const SCHEME: &'static str = "postgres";
    const ALL: &'static [Self] = &[
        Self::HugeMessage,
        Self::HugeRow,
        Self::Notices,
        Self::Parameters,
        Self::Rows,
        Self::ClearText,
        Self::Authentication,
        Self::UnknownMethod,
        Self::Iterations,
        Self::Failure,
        Self::OtherRow,
        Self::NoToken,
        Self::PlainAfterYes,
        Self::Nothing,
    ];

    fn says(self, number: usize) -> Said {
        let login = [authentication(0, b""), message(b'K', &[0, 0, 0, 7, 0, 0, 0, 7]), ready()].concat();
        let notice = message(b'N', b"SNOTICE\0C00000\0Mhello\0\0");
        let parameter = message(b'S', &[&b"name\0"[..], &[b'x'; 1000], b"\0"].concat());
        match (self, number) {
            (Self::HugeMessage, _) => ([&b"R"[..], &[0xff; 4]].concat(), vec![0; 16384]),
            (Self::Parameters, _) => (authentication(0, b""), parameter.repeat(10)),
            (Self::ClearText, _) => (authentication(3, b""), Vec::new()),
            (Self::Authentication, _) => (authentication(5, b"salt"), Vec::new()),
            (Self::UnknownMethod, _) => (authentication(99, b""), Vec::new()),
            (Self::Iterations, 0) => (authentication(10, b"SCRAM-SHA-256\0\0"), Vec::new()),
            (Self::Iterations, _) => (authentication(11, b"r=x,s=AAAA,i=2000000000"), Vec::new()),
            (Self::PlainAfterYes, _) => ([&b"S"[..], &login].concat(), Vec::new()),
            (Self::Failure, _) => {
                let text = [&b"SFATAL\0C57P03\0M\x1b[2J"[..], &vec![b'x'; 20_000], b"\0\0"].concat();
                (message(b'E', &text), Vec::new())
            }
            (_, 0) => (login, Vec::new()),
            (Self::HugeRow, _) => ([&b"D"[..], &[0x7f, 0xff, 0xff, 0xff]].concat(), vec![0; 16384]),
            (Self::Notices, _) => (Vec::new(), notice.repeat(100)),
            (Self::Rows, _) => (columns(1), row(&["x"]).repeat(100)),
            (Self::OtherRow, _) => ([columns(2), row(&["look", "t"]), complete(), ready()].concat(), Vec::new()),
            (Self::NoToken, _) => {
                let lock = ["look", "t", "f", "x", "9007199254740992", "x", "1", "1", "1", "1", "7", "1"];
                let fields = [&lock[..], &["x", "1", "f", "0", "slots5", "{\"v\":1,\"length\":1}", "x"]].concat();
                ([columns(19), row(&fields), complete(), ready()].concat(), Vec::new())
            }
            (Self::Nothing, _) => ([complete(), ready()].concat(), Vec::new()),
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

fn authentication(method: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&method.to_be_bytes()[..], rest].concat())
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn complete() -> Vec<u8> {
    message(b'C', b"SELECT 1\0")
}

fn columns(count: u16) -> Vec<u8> {
    let column = [&b"c\0"[..], &[0; 18]].concat();
    message(b'T', &[&count.to_be_bytes()[..], &column.repeat(usize::from(count))].concat())
}

fn row(fields: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
    for field in fields {
        body.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
        body.extend(field.as_bytes());
    }
    message(b'D', &body)
}
