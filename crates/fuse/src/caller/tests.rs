use super::*;

/// Goal: only effective capabilities count, and a status without them grants nothing.
#[test]
fn capabilities_in_effect() {
    let status = |effective: &str| {
        format!("Name:\tmkdir\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective}\nCapBnd:\t000001ffffffffff\n")
    };
    assert!(has(&status("000001ffffffffff"), CAP_SYS_ADMIN));
    assert!(has(&status("0000000000200000"), CAP_SYS_ADMIN));
    // The capabilities of root in a container.
    assert!(!has(&status("00000000a80425fb"), CAP_SYS_ADMIN));
    for none in ["", "CapEff:", "CapEff:\tnone", "CapPrm:\t000001ffffffffff"] {
        assert!(!has(none, CAP_SYS_ADMIN));
    }
    assert!(!Asker { uid: 0, pid: 0 }.administrates());
}
