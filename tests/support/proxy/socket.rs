//! The sockets of a proxy: reserving a port, connecting without waiting, and resets.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, sockopt};

/// A port of 127.0.0.1, and the bound socket that keeps everyone else from getting it. Other sockets can be bound to
/// it, and listen, only by naming it.
pub(super) fn reserve_port() -> (OwnedFd, u16) {
    let fd = tcp_socket(SockFlag::SOCK_CLOEXEC);
    socket::setsockopt(&fd, sockopt::ReuseAddr, &true).unwrap();
    let (address, size) = local(0);
    // SAFETY: bind reads one whole address, and `address` is one.
    let result = unsafe { nix::libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(result, 0, "could not bind a port: {}", std::io::Error::last_os_error());
    // Only asks for the name: the standard library has no type for sockets that are bound and do not listen.
    let socket = TcpListener::from(fd);
    let port = socket.local_addr().unwrap().port();
    (socket.into(), port)
}

/// 127.0.0.1:`port` for the kernel, and its size.
fn local(port: u16) -> (nix::libc::sockaddr_in, nix::libc::socklen_t) {
    let address = nix::libc::sockaddr_in {
        sin_family: AddressFamily::Inet as nix::libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: nix::libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    (address, size_of_val(&address).try_into().expect("a small structure"))
}

/// A non-blocking listener on a port from [`reserve_port`].
pub(super) fn listen(port: u16) -> TcpListener {
    // The standard library sets SO_REUSEADDR, without which the reservation would be in its way.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("could not listen on the reserved port");
    listener.set_nonblocking(true).unwrap();
    listener
}

fn tcp_socket(flags: SockFlag) -> OwnedFd {
    socket::socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("could not make a socket")
}

/// Begins to connect and does not wait: a stopped server with a full backlog must not stop the proxy. A refusal shows
/// at the first read.
pub(super) fn connect(port: u16) -> TcpStream {
    let fd = tcp_socket(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
    let (address, size) = local(port);
    // SAFETY: connect reads one whole address, and `address` is one.
    unsafe { nix::libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size) };
    TcpStream::from(fd)
}

/// Makes the following close a TCP reset.
pub(super) fn linger_none(stream: &TcpStream) {
    let _ = socket::setsockopt(stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 });
}

pub(super) fn reset(stream: TcpStream) {
    linger_none(&stream);
    drop(stream);
}
