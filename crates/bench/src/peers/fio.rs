//! Random reads of 8 KiB by fio, from 32 files that the server has in memory.
//!
//! * `cold` bypasses the kernel's cache, so each read reaches the server.
//! * `hot` reads from the kernel's cache.

use super::knobs::{FILE_MB, MSECS, TITLE};
use super::mounted::Mounted;
use super::{Answer, Knobs};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// fio with the options that all runs share.
fn program(dir: &Path, files_mb: u64) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--name=x", "--ioengine=psync", "--group_reporting", "--output-format=json", "--invalidate=0"]);
    fio.args([
        "--nrfiles=32",
        "--filename_format=f.$filenum",
        "--file_service_type=random",
        "--randrepeat=0",
    ]);
    // With several jobs fio also needs the total size.
    fio.arg(format!("--size={}M", files_mb * 32));
    fio.arg(format!("--filesize={files_mb}M")).arg(format!("--directory={}", dir.display()));
    fio
}

/// Runs fio, and returns the figures of its only job.
fn job(fio: &mut Command) -> Result<Value> {
    let output = fio.output().context("start fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Warnings may come before the JSON.
    let answer = text.find('{').and_then(|at| serde_json::from_str::<Value>(&text[at..]).ok());
    let answer = answer.filter(|_| output.status.success());
    answer.map(|mut a| a["jobs"][0].take()).with_context(|| {
        let words = String::from_utf8_lossy(&output.stderr);
        format!("fio: {}", words.trim().lines().last().unwrap_or("it failed without a word"))
    })
}

pub(super) fn fio(mounted: &Mounted, knobs: &Knobs) -> Result<Answer> {
    let (title, mb) = (knobs.word(TITLE)?.to_owned(), knobs.number(FILE_MB)?);
    job(program(mounted.dir(), mb).args(["--rw=write", "--bs=1M", "--end_fsync=1", "--create_on_open=1"]))?;
    let mut answer = Answer::default();
    for (state, direct) in [("cold", "--direct=1"), ("hot", "--direct=0")] {
        // Read everything once, so that the server or the kernel has it in memory.
        job(program(mounted.dir(), mb).args(["--rw=read", "--bs=1M", direct]))?;
        for threads in knobs.threads()? {
            let mut fio = program(mounted.dir(), mb);
            fio.args(["--rw=randread", "--bs=8k", "--time_based", direct]);
            fio.arg(format!("--numjobs={threads}"));
            fio.arg(format!("--runtime={}ms", knobs.number(MSECS)?));
            let (done, spent) = mounted.measure(|_| job(&mut fio))?;
            let read = &done["read"];
            let ops = read["total_ios"].as_f64().filter(|n| *n > 0.0).context("fio read nothing")?;
            let title = format!("{title}-{state}");
            let mut put = |name: &str, value: Option<f64>| {
                if let Some(value) = value {
                    answer.put(&title, &format!("t{threads}.{name}"), value);
                }
            };
            put("ops_s", read["iops"].as_f64());
            put("p99_us", read["clat_ns"]["percentile"]["99.000000"].as_f64().map(|ns| ns / 1e3));
            put("server_cpu_us", Some(spent.server_cpu_s / ops * 1e6));
        }
    }
    Ok(answer)
}
