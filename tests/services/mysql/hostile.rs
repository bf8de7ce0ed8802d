//! Servers that are no MySQL, or lie as one.

use crate::services::databases::hostile::{self, Said, are_given_up_in_time};

#[test]
fn servers_that_lie_are_given_up_in_time() {
    are_given_up_in_time::<Lie>();
}

/// How a liar lies.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A greeting of 16 MiB.
    HugeGreeting,
    /// A greeting that is cut off.
    ShortGreeting,
    /// That we may not come, with a text that is not for terminals.
    Denied,
    /// A request for the password in clear text.
    ClearText,
    /// A request for the whole password after a proof of it.
    WholePassword,
    /// Other ways of logging in, without end.
    Authentication,
    /// A way of logging in that there is not.
    UnknownMethod,
    /// The very old way.
    OldMethod,
    /// A request for a file, as the answer to a request.
    File,
    /// Four thousand million columns.
    Columns,
    /// Columns without end.
    EndlessColumns,
    /// Rows without end.
    Rows,
    /// Answers without end.
    Answers,
    /// That it takes writes, and then nothing that makes sense.
    OtherRow,
    /// That the lock is ours, with a token that cannot be.
    NoToken,
    /// Yes to TLS, and an answer in plain text with it.
    PlainBehindGreeting,
}

impl hostile::Lie for Lie {
    const SCHEME: &'static str = "mysql";
    const ALL: &'static [Self] = &[
        Self::HugeGreeting,
        Self::ShortGreeting,
        Self::Denied,
        Self::ClearText,
        Self::WholePassword,
        Self::Authentication,
        Self::UnknownMethod,
        Self::OldMethod,
        Self::File,
        Self::Columns,
        Self::EndlessColumns,
        Self::Rows,
        Self::Answers,
        Self::OtherRow,
        Self::NoToken,
        Self::PlainBehindGreeting,
    ];

    fn greets(self) -> Said {
        match self {
            Self::HugeGreeting => (vec![0xff, 0xff, 0xff, 0], vec![10; 16384]),
            Self::ShortGreeting => (packet(0, &greeting()[..30]), Vec::new()),
            Self::Denied => (packet(0, b"\xff\x6a\x04#HY000\x1b[2Jno"), Vec::new()),
            Self::PlainBehindGreeting => ([packet(0, &greeting()), packet(2, OK)].concat(), Vec::new()),
            _ => (packet(0, &greeting()), Vec::new()),
        }
    }

    fn says(self, number: usize) -> Said {
        let salt = [&[b'x'; 20][..], b"\0"].concat();
        let switch = |method: &str| [&b"\xfe"[..], method.as_bytes(), b"\0", &salt].concat();
        let writes = || answer(&[&["writes"]]);
        match (self, number) {
            (Self::ClearText, _) => (packet(2, &switch("mysql_clear_password")), Vec::new()),
            (Self::WholePassword, 0) => (packet(2, &switch("caching_sha2_password")), Vec::new()),
            (Self::WholePassword, _) => (packet(4, &[1, 4]), Vec::new()),
            (Self::Authentication, number) => {
                (packet(u8::try_from(2 * number + 2).unwrap_or(0), &switch("mysql_native_password")), Vec::new())
            }
            (Self::UnknownMethod, _) => (packet(2, &switch("\x1b[2J")), Vec::new()),
            (Self::OldMethod, _) => (packet(2, b"\xfe"), Vec::new()),
            (_, 0) => (packet(2, OK), Vec::new()),
            (Self::File, _) => (packet(1, b"\xfb/etc/passwd"), Vec::new()),
            (Self::Columns, _) => (packet(1, b"\xfe\xff\xff\xff\xff\0\0\0\0"), vec![0; 16384]),
            (Self::EndlessColumns, _) => (packet(1, &[60]), packets(2, b"column")),
            (Self::Rows, _) => ([packet(1, &[1]), packet(2, b"c"), packet(3, END)].concat(), packets(4, b"\x01x")),
            (Self::Answers, _) => (Vec::new(), packets(1, b"\0\0\0\x08\0\0\0")),
            (_, 1) => (writes(), Vec::new()),
            (_, 2) => (packet(1, OK), Vec::new()),
            (Self::NoToken, _) => {
                let lock = ["look", "t", "f", "x", "9007199254740992", "x", "1", "1", "1", "1", "7", "1"];
                (answer(&[&[&lock[..], &["x", "1", "f", "0", "slots5", "{}", "x"]].concat()]), Vec::new())
            }
            (_, _) => (answer(&[&["look", "t"]]), Vec::new()),
        }
    }
}

/// That all went well.
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
/// The end of columns, or of rows.
const END: &[u8] = &[0xfe, 0, 0, 2, 0];

fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&[a, b, c, number], body].concat()
}

/// Packets with this body and all numbers, from `first` on.
fn packets(first: u8, body: &[u8]) -> Vec<u8> {
    (0..=u8::MAX).flat_map(|step| packet(first.wrapping_add(step), body)).collect()
}

fn greeting() -> Vec<u8> {
    let flags = 0x00ff_ffff_u32.to_le_bytes();
    let fixed = [&[7, 0, 0, 0][..], b"saltsalt\0", &flags[..2], &[45, 2, 0], &flags[2..], &[21], &[0; 10]].concat();
    [&b"\x0a8.0.0\0"[..], &fixed, b"saltsaltsalt\0", b"mysql_native_password\0"].concat()
}

/// Rows of texts.
fn answer(rows: &[&[&str]]) -> Vec<u8> {
    let columns = u8::try_from(rows[0].len()).unwrap();
    let mut bodies = vec![vec![columns]];
    bodies.extend((0..columns).map(|_| b"column".to_vec()));
    bodies.push(END.to_vec());
    for row in rows {
        let field = |field: &&str| [&[u8::try_from(field.len()).unwrap()], field.as_bytes()].concat();
        bodies.push(row.iter().flat_map(field).collect());
    }
    bodies.push(END.to_vec());
    (1..).zip(bodies).flat_map(|(number, body)| packet(number, &body)).collect()
}
