//! `zfs project` on a mounted file system. The test does nothing if mounting is not possible.

use std::fs;

use crate::common::stand::Stand;

/// Goal: projects are shown, checked, set and cleared as in OpenZFS 2.3.2, word for word.
#[test]
fn projects_are_shown_checked_set_and_cleared() {
    let Some(stand) = Stand::new("") else { return };
    let pr = stand.path("tank/pr");
    fs::create_dir_all(pr.join("x")).expect("folders");
    fs::write(pr.join("f"), "").and_then(|()| fs::write(pr.join("x/g"), "")).expect("files");
    std::os::unix::fs::symlink("nowhere", pr.join("link")).expect("a link");
    let pr = pr.display().to_string();
    let said = |line: &str| -> Vec<String> {
        let out = stand.good(&format!("zfs project {line}"));
        let mut all: Vec<String> = out.lines().map(|l| l.replace(&pr, "pr")).collect();
        all.sort();
        all
    };
    let at = |line: &str| said(&line.replace("pr", &pr).replace(&format!("-{pr}"), "-pr"));
    assert_eq!(at("pr"), ["    0 - pr", "    0 - pr/f", "    0 - pr/x"]);
    assert_eq!(at("-d pr"), ["    0 - pr"]);
    assert_eq!(at("-r pr"), ["    0 - pr", "    0 - pr/f", "    0 - pr/x", "    0 - pr/x/g"]);
    assert_eq!(at("-p 7 -s pr"), [""; 0]);
    assert_eq!(at("pr"), ["    0 - pr/f", "    0 - pr/x", "    7 P pr"]);
    assert_eq!(
        at("-c pr"),
        [
            "pr/f - project ID is not set properly (0/7)",
            "pr/f - project inherit flag is not set",
            "pr/x - project ID is not set properly (0/7)",
            "pr/x - project inherit flag is not set",
        ]
    );
    assert_eq!(at("-s -r pr"), [""; 0]);
    assert_eq!(at("-r pr"), ["    7 P pr", "    7 P pr/f", "    7 P pr/x", "    7 P pr/x/g"]);
    assert_eq!(at("-c -r -p 0x7 pr"), [""; 0]);
    let bare = stand.good(&format!("zfs project -c -0 -p 8 {pr}"));
    assert!(bare.starts_with(&format!("{pr}\0")) && bare.matches('\0').count() == 3, "{bare:?}");
    assert_eq!(at("-C -k pr"), [""; 0]);
    assert_eq!(at("pr"), ["    7 - pr", "    7 P pr/f", "    7 P pr/x"]);
    assert_eq!(at("-C -r pr"), [""; 0]);
    assert_eq!(at("-r pr"), ["    0 - pr", "    0 - pr/f", "    0 - pr/x", "    0 - pr/x/g"]);
    assert_eq!(at("-p 5 pr/f"), [""; 0]);
    assert_eq!(at("pr/f"), ["    5 - pr/f"]);
    for (line, words) in [
        ("-r pr/f", "'-r' option on non-dir target pr/f\n"),
        ("-d pr/f", "'-d' option on non-dir target pr/f\n"),
        ("pr/no", "failed to stat pr/no: No such file or directory\n"),
    ] {
        let ran = stand.ran(&format!("zfs project {}", line.replace("pr", &pr)));
        assert_eq!((ran.code, ran.err.replace(&pr, "pr").as_str()), (255, words), "{line}");
    }
    for (line, words) in [
        ("-k pr", "'-k' is only valid together with '-C'\n"),
        ("-C -d pr", "'-d' is useless together with '-C'\n"),
        ("-p x pr", "project ID must be less than 4294967295\n"),
        ("-p 4294967295 pr", "invalid project ID\n"),
        ("-0 pr", "'-0' is only valid together with '-c'\n"),
        ("-cs pr", "cannot specify '-C' '-c' '-s' together\n"),
        ("", "missing file or directory target(s)\n"),
        ("-r", "missing file or directory target(s)\n"),
    ] {
        let ran = stand.ran(&format!("zfs project {line}"));
        assert_eq!(ran.code, 2, "{line}");
        assert!(ran.err.starts_with(&format!("{words}usage:\n\tproject [-d|-r] ")), "{line}: {}", ran.err);
    }
}
