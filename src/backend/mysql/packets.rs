/*!
Packets on a connection. Reads exactly one packet at a time, so that nothing injected before a handshake is trusted
after it, and bounds each one's length before it allocates memory.
*/

use std::io;

use bytes::BytesMut;
use mysql_common::constants::{CapabilityFlags, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::misc::raw::RawInt;
use mysql_common::misc::raw::int::LenEnc;
use mysql_common::packets::{CommonOkPacket, ErrPacket, OkPacket, OkPacketDeserializer, OldEofPacket};
use mysql_common::proto::codec::PacketCodec;
use mysql_common::value::{TextValue, Value, ValueDeserializer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::backend::mysql::errors::Said;
use crate::backend::sql::answers::Row;
use crate::backend::sql::link::Failure;

/// The length from which on a packet is refused. An honest one holds a row with 4 KiB of text.
const LONGEST: usize = 64 * 1024;
/// The longest request.
const REQUEST: usize = 8 * 1024 * 1024;
/// The size of a packet's header: its length and its number.
const HEADER: usize = 4;
/// The maximum number of columns in an answer.
const COLUMNS: u64 = 64;
/// The first byte of an answer's first packet if the answer has no rows, is an error, or asks for a file.
const OK: u8 = 0;
const ERROR: u8 = 0xff;
const FILE: u8 = 0xfb;
/// The first byte of the packet after the columns or the rows, and a length that this packet stays below.
const END: u8 = 0xfe;
const END_LENGTH: usize = 9;
/// The commands to close the connection and to execute statements.
const QUIT: u8 = 1;
const QUERY: u8 = 3;

/// A connection that carries packets.
#[derive(Debug)]
pub(super) struct Packets<S> {
    stream: S,
    codec: PacketCodec,
    /// The bytes read so far of the next packet.
    begun: BytesMut,
    /// A request was begun and perhaps not sent completely.
    is_cut: bool,
    /// The part read so far of an outstanding answer.
    answer: Option<Answer>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Packets<S> {
    /// Packets on `stream`.
    pub(super) fn new(stream: S) -> Self {
        Self { stream, codec: PacketCodec::default(), begun: BytesMut::new(), is_cut: false, answer: None }
    }

    /// The stream, and the state to continue the packets on another one.
    pub(super) fn into_parts(self) -> (S, Packets<()>) {
        (self.stream, Packets { stream: (), codec: self.codec, begun: self.begun, is_cut: false, answer: None })
    }

    /// Reads one packet.
    pub(super) async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut packet = Vec::new();
        self.codec.max_allowed_packet = LONGEST;
        while !self.codec.decode(&mut self.begun, &mut packet).map_err(|error| broken(&error.to_string()))? {
            let missing = match self.begun[..] {
                [a, b, c, _, ..] => HEADER + usize::from(a) + (usize::from(b) << 8) + (usize::from(c) << 16),
                _ => HEADER,
            };
            let missing = missing.saturating_sub(self.begun.len());
            let read = (&mut self.stream).take(missing as u64).read_buf(&mut self.begun).await?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed"));
            }
        }
        Ok(packet)
    }

    /// Writes one packet.
    pub(super) async fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        self.codec.max_allowed_packet = REQUEST;
        self.codec.encode(&mut &packet[..], &mut bytes).map_err(|error| broken(&error.to_string()))?;
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }

    /// Tells the server that the connection ends.
    pub(super) async fn quit(&mut self) -> io::Result<()> {
        self.codec.reset_seq_id();
        self.write(&[QUIT]).await
    }

    /// Sends statements, and reads the whole answer: the rows of all of them, or the first error. An outstanding answer
    /// to an earlier request is read first and discarded.
    pub(super) async fn ask(&mut self, text: &str) -> Result<Vec<Row>, Failure<Said>> {
        if self.is_cut {
            return Err(broken("a request was not sent to its end").into());
        }
        if self.answer.is_some() {
            match self.answered().await {
                Err(Failure::Broke(text)) => return Err(Failure::Broke(text)),
                Ok(_) | Err(Failure::Said(_)) => {}
            }
        }
        self.codec.reset_seq_id();
        self.is_cut = true;
        self.write(&[&[QUERY], text.as_bytes()].concat()).await?;
        self.is_cut = false;
        self.answer = Some(Answer::default());
        self.answered().await
    }

    /// Reads the rest of the answer. If this future is dropped, the next call continues where it stopped.
    async fn answered(&mut self) -> Result<Vec<Row>, Failure<Said>> {
        loop {
            let packet = self.read().await?;
            let Some(answer) = &mut self.answer else { return Err(broken("an answer that nobody asked for").into()) };
            let ended = match answer.next(&packet) {
                Ok(false) => continue,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            let rows = self.answer.take().map(|answer| answer.rows).unwrap_or_default();
            return ended.map(|()| rows);
        }
    }
}

/// An answer, as far as it was read.
#[derive(Debug, Default)]
struct Answer {
    rows: Vec<Row>,
    next: Next,
}

/// The next packet expected of an answer.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    /// The first packet about a statement.
    #[default]
    First,
    /// A packet about a column, with the number of columns left, and of all columns.
    Column(u64, u64),
    /// The end of the columns, with their number.
    ColumnsEnd(u64),
    /// A row with this number of columns, or the end of the rows.
    Row(u64),
}

impl Answer {
    /// Adds the next packet. Returns `true` if it was the last one.
    fn next(&mut self, packet: &[u8]) -> Result<bool, Failure<Said>> {
        let status = match (self.next, packet.first()) {
            (Next::First, Some(&OK)) => ended::<CommonOkPacket>(packet)?,
            (Next::First | Next::Row(_), Some(&ERROR)) => return Err(said(packet)),
            (Next::First, Some(&FILE) | None) => return Err(broken("it asks for a file").into()),
            (Next::First, Some(_)) => {
                let columns: RawInt<LenEnc> = ParseBuf(packet).parse(())?;
                if *columns > COLUMNS {
                    return Err(broken("an answer has too many columns").into());
                }
                self.next = if *columns == 0 { Next::ColumnsEnd(0) } else { Next::Column(*columns, *columns) };
                return Ok(false);
            }
            (Next::Column(left, columns), _) => {
                self.next = if left == 1 { Next::ColumnsEnd(columns) } else { Next::Column(left - 1, columns) };
                return Ok(false);
            }
            (Next::ColumnsEnd(columns), _) => {
                ended::<OldEofPacket>(packet)?;
                self.next = Next::Row(columns);
                return Ok(false);
            }
            (Next::Row(_), Some(&END)) if packet.len() < END_LENGTH => ended::<OldEofPacket>(packet)?,
            (Next::Row(columns), _) => {
                self.rows.push(row(packet, columns)?);
                return Ok(false);
            }
        };
        self.next = Next::First;
        Ok(!status.contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS))
    }
}

impl Packets<()> {
    /// Continues the packets on another stream.
    pub(super) fn resume<S>(self, stream: S) -> Packets<S> {
        Packets { stream, codec: self.codec, begun: self.begun, is_cut: false, answer: None }
    }
}

impl From<io::Error> for Failure<Said> {
    fn from(error: io::Error) -> Self {
        let text = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "connection closed".to_owned()
            }
            _ => error.to_string(),
        };
        Self::Broke(text)
    }
}

/// The error in an error packet.
pub(super) fn said(packet: &[u8]) -> Failure<Said> {
    // Before the capabilities are negotiated, an error has no SQL state, which begins with a #.
    let agreed = match packet.get(3) {
        Some(b'#') => CapabilityFlags::CLIENT_PROTOCOL_41,
        _ => CapabilityFlags::empty(),
    };
    // dlock never requests progress reports.
    match ParseBuf(packet).parse::<ErrPacket<'_>>(agreed) {
        Ok(ErrPacket::Error(error)) => {
            Failure::Said(Said { code: error.error_code(), message: error.message_str().into_owned() })
        }
        Ok(ErrPacket::Progress(_)) => Failure::Broke("it reports progress".to_owned()),
        Err(error) => error.into(),
    }
}

/// The status flags at the end of a result, which tell whether more results follow.
fn ended<K: mysql_common::packets::OkPacketKind>(packet: &[u8]) -> io::Result<StatusFlags> {
    let parsed = ParseBuf(packet).parse::<OkPacketDeserializer<'_, K>>(CapabilityFlags::CLIENT_PROTOCOL_41)?;
    let packet: OkPacket<'_> = parsed.into();
    Ok(packet.status_flags())
}

/// The texts of a row.
fn row(packet: &[u8], columns: u64) -> io::Result<Row> {
    let mut rest = ParseBuf(packet);
    let mut text = || match rest.parse::<ValueDeserializer<TextValue>>(())?.0 {
        Value::NULL => Ok(None),
        Value::Bytes(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| broken("a text is not UTF-8")),
        _ => Err(broken("a text is a number")),
    };
    (0..columns).map(|_| text()).collect()
}

/// The error for a malformed reply.
fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;
    use crate::property::holds;

    fn received(bytes: &[u8]) -> Result<Vec<Row>, Failure<Said>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(async {
            let (ours, mut its) = duplex(1 << 20);
            its.write_all(bytes).await.expect("room");
            its.shutdown().await.expect("an end");
            Packets::new(ours).ask("x").await
        })
    }

    fn packet(number: u8, body: &[u8]) -> Vec<u8> {
        let length = u8::try_from(body.len()).expect("short");
        [&[length, 0, 0, number], body].concat()
    }

    #[test]
    fn the_rows_of_all_statements_are_read() {
        let end = |more: u8| [END, 0, 0, more, 0];
        let answer = [
            packet(1, &[OK, 0, 0, 8, 0, 0, 0]),
            packet(2, &[2]),
            packet(3, b"column"),
            packet(4, b"column"),
            packet(5, &end(8)),
            packet(6, b"\x04look\xfb"),
            packet(7, &end(8)),
            packet(8, &[OK, 0, 0, 0, 0, 0, 0]),
        ];
        assert_eq!(received(&answer.concat()), Ok(vec![vec![Some("look".to_owned()), None]]));
        for cut in 1..answer.len() {
            assert_eq!(received(&answer[..cut].concat()), Err(Failure::Broke("connection closed".to_owned())), "{cut}");
        }
        let error = [packet(1, &[OK, 0, 0, 8, 0, 0, 0]), packet(2, b"\xff\xbd\x04#40001no")].concat();
        assert_eq!(received(&error), Err(Failure::Said(Said { code: 1213, message: "no".to_owned() })));
    }

    #[test]
    fn a_header_alone_is_enough_to_refuse_a_packet() {
        let long = received(&[0xff, 0xff, 0xff, 1, 0]).expect_err("too long");
        assert!(matches!(&long, Failure::Broke(text) if text.contains("large")), "{long:?}");
        let many = received(&packet(1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0])).expect_err("too many");
        assert!(matches!(&many, Failure::Broke(text) if text.contains("columns")), "{many:?}");
    }

    #[test]
    fn whatever_comes_is_read_or_refused() {
        let byte = prop_oneof![Just(0_u8), Just(1), Just(2), Just(0xfb), Just(0xfe), Just(0xff), any::<u8>()];
        holds(2000, vec(vec(byte, 0..12), 0..6), |bodies| {
            let answer: Vec<u8> = (1..).zip(&bodies).flat_map(|(number, body)| packet(number, body)).collect();
            let _ = received(&answer);
            Ok(())
        });
    }
}
