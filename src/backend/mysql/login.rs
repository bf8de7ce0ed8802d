/*!
Logs in: negotiates capabilities with a server, and proves our identity. Never sends a password so that others could
read it.
*/

use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;
use mysql_common::auth::plugins::mysql_native_password::{SCRAMBLE_LENGTH, scramble_native};
use mysql_common::constants::CapabilityFlags as Flags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthMoreData, AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest,
};
use mysql_common::proto::MySerialize;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::backend::mysql::errors::{CLEAR_TEXT, LACKS, Said};
use crate::backend::mysql::packets::{Packets, said};
use crate::backend::sql::link::Failure;

/// The requested capabilities: several statements per request, and above all row counts that include unchanged rows.
const WANTED: Flags = Flags::CLIENT_PROTOCOL_41
    .union(Flags::CLIENT_SECURE_CONNECTION)
    .union(Flags::CLIENT_TRANSACTIONS)
    .union(Flags::CLIENT_FOUND_ROWS)
    .union(Flags::CLIENT_MULTI_STATEMENTS)
    .union(Flags::CLIENT_MULTI_RESULTS)
    .union(Flags::CLIENT_PLUGIN_AUTH);
/// The longest packet that we accept, as announced to the server.
const LONGEST: u32 = 64 * 1024;
/// The character set of texts (`utf8mb4`).
const CHARACTERS: u8 = 45;
/// Maximum number of packets from the server in a login.
const ROUNDS: usize = 8;

/// The credentials of a login, and the kind of connection.
#[derive(Clone, Copy)]
pub(super) struct Credentials<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The password; may be empty.
    pub password: &'a str,
    /// The database's name.
    pub database: &'a str,
    /// The connection is encrypted.
    pub is_tls: bool,
    /// The connection is a local socket.
    pub is_local: bool,
}

/// An authentication method. Unlike the library's, none encrypts with a key from the server, which anybody could send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Native,
    CachingSha2,
    Clear,
}

impl Method {
    /// The method that a server requests, if it is safe over this connection.
    fn of(plugin: &AuthPlugin<'_>, credentials: Credentials<'_>) -> Result<Self, Failure<Said>> {
        match plugin {
            AuthPlugin::CachingSha2Password => Ok(Self::CachingSha2),
            AuthPlugin::MysqlNativePassword => Ok(Self::Native),
            AuthPlugin::MysqlClearPassword if credentials.is_tls => Ok(Self::Clear),
            AuthPlugin::MysqlClearPassword => Err(Failure::Broke(CLEAR_TEXT.to_owned())),
            _ => Err(Failure::Broke(format!("{LACKS}{}", String::from_utf8_lossy(plugin.as_bytes())))),
        }
    }

    /// The proof of our identity, for the server's nonce.
    fn proof(self, credentials: Credentials<'_>, nonce: &[u8]) -> Result<Vec<u8>, Failure<Said>> {
        let password = credentials.password.as_bytes();
        let nonce = <&[u8; SCRAMBLE_LENGTH]>::try_from(nonce);
        let nonce = nonce.map_err(|_| Failure::Broke("the login makes no sense".to_owned()));
        Ok(match self {
            Self::Native => scramble_native(nonce?, password).map(|proof| proof.to_vec()).unwrap_or_default(),
            Self::CachingSha2 => scramble_sha256(nonce?, password).map(|proof| proof.to_vec()).unwrap_or_default(),
            Self::Clear => whole(credentials),
        })
    }

    /// The answer to further data from the server; `None` if it has accepted the proof.
    fn more(self, credentials: Credentials<'_>, data: &[u8]) -> Result<Option<Vec<u8>>, Failure<Said>> {
        match (self, data) {
            (Self::CachingSha2, [3]) => Ok(None),
            (Self::CachingSha2, [4]) if credentials.is_tls || credentials.is_local => Ok(Some(whole(credentials))),
            (Self::CachingSha2, [4]) => Err(Failure::Broke(CLEAR_TEXT.to_owned())),
            _ => Err(Failure::Broke("the login makes no sense".to_owned())),
        }
    }
}

/// The password itself, with a terminating NUL.
fn whole(credentials: Credentials<'_>) -> Vec<u8> {
    [credentials.password.as_bytes(), b"\0"].concat()
}

/// The first packet of a server.
#[derive(Debug)]
pub(super) struct Greeting {
    nonce: Vec<u8>,
    plugin: Option<AuthPlugin<'static>>,
    flags: Flags,
}

impl Greeting {
    /// Reads the greeting.
    pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
        packets: &mut Packets<S>,
    ) -> Result<Self, Failure<Said>> {
        let packet = packets.read().await?;
        if packet.first() == Some(&0xff) {
            return Err(said(&packet));
        }
        let greeting: HandshakePacket<'_> = ParseBuf(&packet).parse(())?;
        let flags = greeting.capabilities();
        if greeting.protocol_version() != 10 || !flags.contains(WANTED) {
            return Err(Failure::Broke("it speaks another protocol".to_owned()));
        }
        let plugin = greeting.auth_plugin().map(AuthPlugin::into_owned);
        Ok(Self { nonce: greeting.nonce(), plugin, flags })
    }

    /// Returns `true` if the server supports TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.flags.contains(Flags::CLIENT_SSL)
    }

    /// The packet that requests TLS.
    pub(super) fn tls_request() -> Vec<u8> {
        let mut packet = Vec::new();
        SslRequest::new(
            WANTED | Flags::CLIENT_LONG_PASSWORD | Flags::CLIENT_SSL | Flags::CLIENT_CONNECT_WITH_DB,
            LONGEST,
            CHARACTERS,
        )
        .serialize(&mut packet);
        packet
    }
}

/// Logs in to a server that has sent this greeting.
pub(super) async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    packets: &mut Packets<S>,
    greeting: Greeting,
    credentials: Credentials<'_>,
) -> Result<(), Failure<Said>> {
    // Any other method is negotiated once the server knows the user.
    let plugin = match greeting.plugin {
        Some(AuthPlugin::CachingSha2Password) => AuthPlugin::CachingSha2Password,
        _ => AuthPlugin::MysqlNativePassword,
    };
    let mut method = Method::of(&plugin, credentials)?;
    let first = method.proof(credentials, &greeting.nonce)?;
    let tls = if credentials.is_tls { Flags::CLIENT_SSL } else { Flags::empty() };
    let mut response = Vec::new();
    HandshakeResponse::new(
        Some(first),
        (8, 0, 0),
        Some(credentials.user.as_bytes()),
        Some(credentials.database.as_bytes()),
        Some(plugin),
        WANTED | Flags::CLIENT_LONG_PASSWORD | tls,
        None,
        LONGEST,
    )
    .serialize(&mut response);
    packets.write(&response).await?;
    for _ in 0..ROUNDS {
        let packet = packets.read().await?;
        let answer = match packet.first() {
            Some(0) => return Ok(()),
            Some(0xff) => return Err(said(&packet)),
            Some(0xfe) if packet.len() > 1 => {
                let switch: AuthSwitchRequest<'_> = ParseBuf(&packet).parse(())?;
                method = Method::of(&switch.auth_plugin(), credentials)?;
                Some(method.proof(credentials, switch.plugin_data())?)
            }
            Some(1) => {
                let more: AuthMoreData<'_> = ParseBuf(&packet).parse(())?;
                method.more(credentials, more.data())?
            }
            _ => return Err(Failure::Broke("it asks for an authentication method that is too old".to_owned())),
        };
        if let Some(answer) = answer {
            packets.write(&answer).await?;
        }
    }
    Err(Failure::Broke("the login does not end".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_sent_only_where_nobody_else_reads_it() {
        for (is_tls, is_local, sha2, clear) in
            [(false, false, false, false), (true, false, true, true), (false, true, true, false)]
        {
            let credentials = Credentials { user: "u", password: "hush", database: "d", is_tls, is_local };
            let sent = Method::CachingSha2.more(credentials, &[4]);
            assert_eq!(sent.is_ok(), sha2, "{is_tls} {is_local}");
            assert_eq!(Method::of(&AuthPlugin::MysqlClearPassword, credentials).is_ok(), clear, "{is_tls} {is_local}");
            assert_eq!(Method::CachingSha2.more(credentials, &[3]), Ok(None));
            let proof = Method::CachingSha2.proof(credentials, &[7; 20]).expect("a proof");
            assert!(proof.len() == 32 && !proof.windows(4).any(|part| part == b"hush"));
            assert!(Method::Native.proof(credentials, &[7; 19]).is_err());
        }
    }
}
