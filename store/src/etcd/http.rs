//! The pages `/version` and `/metrics` of a member, over its client URL: over gRPC, only privileged users can read
//! their content.

use super::credentials::Pem;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Maximum size of a page in bytes.
const MAX_PAGE_BYTES: u64 = 4 * 1024 * 1024;

/// Returns the body of a page. The caller limits the time.
pub(super) async fn get(endpoint: &str, path: &str, tls: Option<&Pem>) -> Result<String, String> {
    let (is_tls, authority) = match endpoint.split_once("://") {
        Some((scheme, authority)) => (scheme == "https", authority),
        None => (false, endpoint),
    };
    let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
    let answer = match (is_tls, tls) {
        (false, _) => exchange(stream, authority, path).await,
        (true, None) => return Err("no certificate authority".to_owned()),
        (true, Some(pem)) => {
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                .map_err(|error| error.to_string())?;
            let connector = TlsConnector::from(Arc::new(client_config(pem)?));
            let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
            exchange(stream, authority, path).await
        }
    };
    body(&answer.map_err(|error| error.to_string())?)
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    authority: &str,
    path: &str,
) -> io::Result<Vec<u8>> {
    // With HTTP/1.0, the body is not chunked, and the end of the connection marks its end.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    match stream.take(MAX_PAGE_BYTES).read_to_end(&mut answer).await {
        // If a server closes the connection without ending its TLS session, the answer is complete nevertheless.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        Ok(_) | Err(_) => Ok(answer),
    }
}

fn body(answer: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("not an HTTP answer")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(format!("unexpected answer {status:?}"))
    }
}

fn client_config(pem: &Pem) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem.ca) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    match &pem.identity {
        None => Ok(builder.with_no_client_auth()),
        Some((cert, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
            let chain = chain.map_err(|error| error.to_string())?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_successful_response_has_a_body() {
        let check = |answer: &str, expected: Option<&str>| {
            assert_eq!(body(answer.as_bytes()).ok().as_deref(), expected, "{answer:?}");
        };
        check("HTTP/1.0 200 OK\r\nContent-Type: x\r\n\r\n{\"a\": 1}", Some("{\"a\": 1}"));
        check("HTTP/1.1 404 Not Found\r\n\r\nno", None);
        check("\0\0\u{4}nonsense", None);
    }
}
