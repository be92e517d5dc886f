//! Detection of the HTTP version from the first bytes of a connection.

use std::io::{self, Cursor};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// First bytes of an HTTP/2 client.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HTTP version of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// Reads until the version is known, and returns it with the stream, including the bytes already read.
///
/// The function waits until the client sends data, so the caller must limit the time. The limit on the head of a
/// request begins only after the version is known, so a client without a request could otherwise keep its connection
/// indefinitely.
pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
) -> io::Result<(Version, impl AsyncRead + AsyncWrite + Unpin)> {
    let mut first = Vec::with_capacity(HTTP2_PREFACE.len());
    let version = loop {
        if !HTTP2_PREFACE.starts_with(&first) {
            break Version::One;
        }
        if first.len() == HTTP2_PREFACE.len() {
            break Version::Two;
        }
        let mut bytes = [0; HTTP2_PREFACE.len()];
        let missing_length = HTTP2_PREFACE.len() - first.len();
        let read = stream.read(bytes.get_mut(..missing_length).unwrap_or_default()).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        first.extend_from_slice(bytes.get(..read).unwrap_or_default());
    };
    let (reader, writer) = tokio::io::split(stream);
    Ok((version, tokio::io::join(Cursor::new(first).chain(reader), writer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// Sends the parts one at a time, and then ends the connection.
    async fn check(parts: &[&[u8]], expected: Option<Version>) {
        let (mut client, server) = tokio::io::duplex(1024);
        let output = parts.concat();
        let speak = async {
            for part in parts {
                client.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let (result, ()) = tokio::join!(read(server), speak);
        match result {
            Ok((version, mut stream)) => {
                assert_eq!(Some(version), expected, "{output:?}");
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await.unwrap();
                assert_eq!(bytes, output, "nothing is lost");
            }
            Err(_) => assert_eq!(expected, None, "{output:?}"),
        }
    }

    #[tokio::test]
    async fn http_version_detection_handles_any_fragmentation() {
        check(&[b"GET / HTTP/1.1\r\n\r\n"], Some(Version::One)).await;
        check(&[b"P", b"O", b"ST / HTTP/1.1\r\n"], Some(Version::One)).await;
        check(&[b"PRI * HTTP/2.0\r\n", b"\r\nSM\r\n\r\n", b"more"], Some(Version::Two)).await;
        check(&[b"PRI * HTTP/1.1\r\n"], Some(Version::One)).await;
        check(&[b"PRI * HT"], None).await;
        check(&[], None).await;
    }
}
