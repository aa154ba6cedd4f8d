use super::*;

/// Only an answer with a length, read whole, is taken.
#[test]
fn takes_whole_answers_only() {
    assert_eq!(body_of(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"), Some(&b"body"[..]));
    assert_eq!(body_of(b"HTTP/1.1 404 No\r\nX: y\r\nContent-Length:  2 \r\n\r\n{}"), Some(&b"{}"[..]));
    for bad in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nbody",
        b"SSH-2.0\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4",
    ] {
        assert_eq!(body_of(bad), None, "{:?}", String::from_utf8_lossy(bad));
    }
}
