use super::*;

fn read(answer: &[u8]) -> Option<Vec<u8>> {
    body_of(answer.to_vec())
}

/// Goal: the client accepts only a complete answer: one with a length, or with the last of its
/// chunks.
#[test]
fn takes_whole_answers_only() {
    assert_eq!(read(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"), Some(b"body".to_vec()));
    assert_eq!(read(b"HTTP/1.1 404 No\r\nX: y\r\nContent-Length:  2 \r\n\r\n{}"), Some(b"{}".to_vec()));
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |chunks: &str| read(format!("{CHUNKED}{chunks}").as_bytes());
    assert_eq!(chunked("4\r\nbody\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"), Some(b"body0123456789".to_vec()));
    for bad in [
        "",
        "4\r\nbody\r\n",
        "4\r\nbo",
        "4\r\nbody0\r\n\r\n",
        "x\r\nbody\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nbody",
    ] {
        assert_eq!(chunked(bad), None, "{bad:?}");
    }
    for bad in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nbody",
        b"SSH-2.0\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4",
    ] {
        assert_eq!(read(bad), None, "{:?}", String::from_utf8_lossy(bad));
    }
}
