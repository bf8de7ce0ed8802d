/*!
TLS certificates for servers and clients on loopback: valid ones, and one for each reason for which a client has to
refuse.

They are made once per test process, with openssl, and every [`Certificates`] is a copy of them in a directory of its
own. All files are readable by every user, because servers run as a different user: these keys protect nothing.
*/

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::daemon::need;
use super::scratch;

/// The configuration of openssl: how to make each kind of certificate, and how to sign one that has expired.
const CONFIGURATION: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = replaced by -subj
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
[other_host]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:elsewhere.example
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
[ca]
default_ca = signer
[signer]
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = anything
[anything]
commonName = supplied
";

/// The identity shown in a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server with the names `localhost` and `127.0.0.1`.
    Server,
    /// A server with the names `localhost` and `127.0.0.1`, valid for one day of 2020 only.
    Expired,
    /// A server with the name `elsewhere.example` only.
    OtherHost,
    /// A server with the right names, signed by the unrelated authority.
    Stranger,
    /// A client whose common name is `dlock-client`.
    Client,
    /// A client whose common name is `dlock-client`, signed by the unrelated authority.
    ClientOfStranger,
}

impl Identity {
    /// Its file name, the authority that signs it, its section above, and its common name.
    fn recipe(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Server => ("server", "ca", "server", "localhost"),
            Self::Expired => ("expired", "ca", "server", "localhost"),
            Self::OtherHost => ("other-host", "ca", "other_host", "elsewhere.example"),
            Self::Stranger => ("stranger", "other-ca", "server", "localhost"),
            Self::Client => ("client", "ca", "client", "dlock-client"),
            Self::ClientOfStranger => ("client-of-stranger", "other-ca", "client", "dlock-client"),
        }
    }

    const ALL: [Self; 6] =
        [Self::Server, Self::Expired, Self::OtherHost, Self::Stranger, Self::Client, Self::ClientOfStranger];
}

/// What a server with TLS shows, and what it requires of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The identity that it shows.
    pub server: Identity,
    /// Whether clients must show a certificate, which must be signed by [`Certificates::ca`].
    pub clients: ClientCertificate,
}

impl Default for Tls {
    fn default() -> Self {
        Self { server: Identity::Server, clients: ClientCertificate::Ignored }
    }
}

/// What a server requires of clients' certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    Ignored,
    /// It asks for one, accepts none at all, and refuses a wrong one.
    Wanted,
    /// It refuses clients without one.
    Needed,
}

/// Certificates and keys in PEM, in a directory of their own that is removed when this is dropped.
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        static MADE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
        let directory = scratch::directory("dlock-tls-");
        for (name, bytes) in MADE.get_or_init(make) {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        Self { directory }
    }

    /// The authority that signed the certificates of [`Identity::Server`], `Expired`, `OtherHost` and `Client`.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// An unrelated authority.
    pub fn other_ca(&self) -> PathBuf {
        self.file("other-ca.crt")
    }

    /// The certificate of `identity`.
    pub fn certificate(&self, identity: Identity) -> PathBuf {
        self.file(&format!("{}.crt", identity.recipe().0))
    }

    /// The key of `identity`, in PKCS 8.
    pub fn key(&self, identity: Identity) -> PathBuf {
        self.file(&format!("{}.key", identity.recipe().0))
    }

    /// Key and certificate of `identity` in one file, as Java reads them.
    pub fn key_and_certificate(&self, identity: Identity) -> PathBuf {
        let path = self.file(&format!("{}.pem", identity.recipe().0));
        let both = [self.key(identity), self.certificate(identity)].map(|part| fs::read(part).unwrap()).concat();
        fs::write(&path, both).unwrap();
        path
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Makes all files: their names and contents.
fn make() -> Vec<(String, Vec<u8>)> {
    let directory = scratch::directory("dlock-openssl-");
    let here = directory.path();
    fs::write(here.join("openssl.cnf"), CONFIGURATION).unwrap();
    fs::write(here.join("index"), "").unwrap();
    for (authority, name) in [("ca", "/CN=dlock test authority"), ("other-ca", "/CN=another test authority")] {
        let (key, certificate) = (format!("{authority}.key"), format!("{authority}.crt"));
        request(here, &["-x509", "-days", "2", "-extensions", "authority", "-subj", name], &key, &certificate);
    }
    let mut names = vec!["ca.crt".to_owned(), "other-ca.crt".to_owned()];
    for identity in Identity::ALL {
        let (file, authority, section, name) = identity.recipe();
        let (key, certificate) = (format!("{file}.key"), format!("{file}.crt"));
        let (ca, ca_key) = (format!("{authority}.crt"), format!("{authority}.key"));
        let name = format!("/CN={name}");
        if identity == Identity::Expired {
            request(here, &["-new", "-subj", &name], &key, "expired.csr");
            let of_2020 = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"];
            let signed = ["-in", "expired.csr", "-out", &certificate, "-cert", &ca, "-keyfile", &ca_key];
            openssl(here, &[&["ca", "-batch", "-notext", "-extensions", section], &of_2020[..], &signed].concat());
        } else {
            let signed = ["-x509", "-days", "2", "-CA", &ca, "-CAkey", &ca_key];
            request(here, &[&signed[..], &["-extensions", section, "-subj", &name]].concat(), &key, &certificate);
        }
        names.extend([key, certificate]);
    }
    names.into_iter().map(|name| (name.clone(), fs::read(here.join(name)).unwrap())).collect()
}

/// `openssl req` with a new key in `key`, and its output in `out`.
fn request(here: &Path, args: &[&str], key: &str, out: &str) {
    let new_key =
        ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", out];
    openssl(here, &[&new_key, args].concat());
}

fn openssl(here: &Path, args: &[&str]) {
    let mut command = Command::new(need("openssl", "openssl"));
    // The subcommand first, then the rest.
    command.arg(args[0]).args(["-config", "openssl.cnf"]).args(&args[1..]).current_dir(here).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "openssl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
}
