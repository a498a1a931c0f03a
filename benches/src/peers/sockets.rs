//! Sockets of the two usual shapes: those that follow std's, and those that follow tokio's.

/// Implements the blocking contract with a listener and a stream that have std's methods.
macro_rules! std_like_sockets {
    ($peer:ident, $listener:ident, $stream:ident) => {
        impl $crate::contract::blocking::Net for $peer {
            type Listener = $listener;
            type Stream = $stream;

            fn listen() -> std::io::Result<($listener, std::net::SocketAddr)> {
                let listener = $listener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
                let address = listener.local_addr()?;
                Ok((listener, address))
            }

            fn accept(listener: &$listener) -> std::io::Result<$stream> {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(stream)
            }
        }
    };
}
pub(super) use std_like_sockets;

/// Implements the contract of futures with a listener and a stream that have tokio's methods.
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
macro_rules! tokio_like_sockets {
    ($peer:ident, $listener:ident, $stream:ident) => {
        impl $crate::contract::futures::Net for $peer {
            type Listener = $listener;
            type Stream = $stream;

            async fn listen() -> std::io::Result<($listener, std::net::SocketAddr)> {
                let listener = $listener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
                let address = listener.local_addr()?;
                Ok((listener, address))
            }

            async fn accept(listener: &$listener) -> std::io::Result<$stream> {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(stream)
            }

            async fn read(stream: &mut $stream, buffer: &mut [u8]) -> std::io::Result<usize> {
                stream.read(buffer).await
            }

            async fn write_all(stream: &mut $stream, bytes: &[u8]) -> std::io::Result<()> {
                stream.write_all(bytes).await
            }
        }
    };
}
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub(super) use tokio_like_sockets;
