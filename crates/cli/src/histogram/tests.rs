#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink::Sink;

/// Runs a line with this input. Returns the exit code and both outputs.
fn ran(line: &str, input: &str) -> (i32, String, String) {
    let (to, errors) = (Sink::default(), Sink::default());
    let (mut out, mut err) = (Out::new(Box::new(to.clone())), Out::new(Box::new(errors.clone())));
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = run_on(&mut out, &mut err, &words, &mut input.as_bytes());
    assert!(out.flush() && err.flush());
    (code, to.text(), errors.text())
}

/// Goal: moments, interval and bars of numbers in lines and words, with comments.
#[test]
fn text() {
    let (code, out, err) = ran("--bins 3 --confidence .9", "1 2 2\n# 99\n3 # 99\n\n4.5\n");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "# NumSamples = 5; Min = 1.000000; Max = 4.500000\n\
         # Mean = 2.500000 (+/- 1.261218 at 90 %); Variance = 1.750000; SD = 1.322876; Median = 2.000000\n\
         # each * represents a count of 1\n\
         1.0000 - 2.1667 [3]: ***\n\
         2.1667 - 3.3333 [1]: *\n\
         3.3333 - 4.5000 [1]: *\n"
    );
    // Bars stay short, and empty ones end with the colon.
    let many = "5\n".repeat(600) + "9\n";
    let lines: Vec<String> = ran("--bins 2", &many).1.lines().map(str::to_owned).collect();
    assert_eq!(lines[2], "# each * represents a count of 10");
    assert_eq!(lines[3], format!("5.0000 - 7.0000 [600]: {}", "*".repeat(60)));
    assert_eq!(lines[4], "7.0000 - 9.0000 [  1]:");
    assert!(ran("", "7").1.contains("# Mean = 7.000000; Variance = 0.000000;"));
}

/// Goal: a difference of samples is in percent of the other mean, with what both tests say of it.
#[test]
fn against() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    let numbers = |from: f64| (0..40).map(|n| format!("{}\n", from + f64::from(n % 5))).collect::<String>();
    std::fs::write(&base, numbers(98.0)).unwrap();
    let line = format!("--against {} --confidence 0.9", base.display());
    let (code, out, _) = ran(&line, &numbers(108.0));
    assert_eq!(code, 0);
    assert!(
        out.contains(
            "# the means differ by +10.0 % (+9.5 to +10.5); Welch's t-test: p = 0.0000: significant at 90 %\n"
        ),
        "{out}"
    );
    assert!(out.ends_with("# Mann-Whitney: U = 1600, p = 0.0000: significant at 90 %\n"), "{out}");
    let (_, out, _) = ran(&line, &numbers(98.0));
    assert!(
        out.contains(
            "differ by +0.0 % (-0.5 to +0.5); Welch's t-test: p = 1.0000: not significant at 90 %\n"
        ),
        "{out}"
    );
    assert!(out.contains("U = 800, p = 1.0000: not significant"), "{out}");
    let (_, out, _) = ran(&line, "100");
    assert!(out.contains("# Welch's t-test needs two numbers of each that differ\n"), "{out}");
    let (_, out, _) = ran(&format!("-j {line}"), &numbers(108.0));
    for words in [
        r#""confidence":0.9,"sample":{"samples":40,"min":108,"#,
        r#""welch":{"difference":10,"#,
        r#""mann_whitney":{"u":1600,"#,
    ] {
        assert!(out.contains(words), "{out}");
    }
}

/// Goal: what is no number, and wrong options, are named with their place.
#[test]
fn refusals() {
    for (line, input, code, why) in [
        ("", "1\n2 x\u{1b}\n", 1, "the standard input, line 2: 'x\\033' is no number\n"),
        ("", "1 nan", 1, "the standard input, line 1: 'nan' is no number\n"),
        ("", "# nothing\n", 1, "there are no numbers in the standard input\n"),
        ("/nonexistent/file", "", 1, "cannot read /nonexistent/file: "),
        ("--confidence 1", "1", 2, "invalid value '1' of option '--confidence': choose more than 0 and"),
        ("--bins 0", "1", 2, "invalid value '0' of option '--bins': choose 1 to 1000\n"),
        ("--bins", "1", 2, "missing argument for option '--bins'\n"),
        ("--nope", "1", 2, "invalid option '--nope'\n"),
        ("a b", "1", 2, "too many arguments\n"),
    ] {
        let (got, out, err) = ran(line, input);
        assert_eq!((got, out.as_str()), (code, ""), "{line}");
        assert!(err.starts_with(why), "{line}: {err}");
    }
    let long = "1 ".repeat(1 << 20);
    assert!(ran("", &long).2.contains("line 1: it is longer than"), "a line has a limit");
    assert_eq!(ran("--help", ""), (0, USAGE.to_owned(), String::new()));
}
