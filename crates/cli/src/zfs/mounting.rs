//! Mounting with a display of its progress.
//!
//! A mount is one request, which the daemon answers when all mounts are done. Meanwhile a second
//! connection queries the progress, by a number that the request carries.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use api::{Error, MountPhase, MountProgress, MountReport, MountRequest};

use crate::cx::{Cx, Stop};

/// Time between two updates of the line.
const PACE: Duration = Duration::from_millis(250);

/// Mounts file systems.
///
/// With `verbose`, shows the progress on a terminal, and afterwards how long each phase took. The
/// inner result is the daemon's answer.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached. That is reported.
pub fn mount(cx: &mut Cx, request: &MountRequest, verbose: bool) -> Result<Result<MountReport, Error>, Stop> {
    let service = cx.service()?;
    let Some(watcher) = cx.watcher.filter(|_| verbose) else {
        let done = service.mount(request);
        if let (true, Ok(report)) = (verbose, &done) {
            cx.out.put(&phases(report));
        }
        return Ok(done);
    };
    cx.out.flush();
    let number = u64::from(std::process::id());
    let request = MountRequest { watch: Some(number), ..request.clone() };
    let (end, ended) = channel::<()>();
    let done = std::thread::scope(|scope| {
        let watch = move || {
            let service = watcher();
            let ask = || service.mount_progress(&number).ok().flatten();
            watch(&ask, &ended, PACE, &mut std::io::stdout());
        };
        // Without the thread, only the display is missing.
        let shown = std::thread::Builder::new().name("progress".into()).spawn_scoped(scope, watch);
        let done = service.mount(&request);
        drop(end);
        drop(shown);
        done
    });
    if let Ok(report) = &done {
        cx.out.put(&phases(report));
    }
    Ok(done)
}

/// Writes a request's progress repeatedly until it ends, and then clears the line.
///
/// `ask` returns the progress. It returns `None` before the request has begun.
fn watch(ask: &dyn Fn() -> Option<MountProgress>, ended: &Receiver<()>, pace: Duration, out: &mut dyn Write) {
    let mut width = 0;
    while ended.recv_timeout(pace) == Err(RecvTimeoutError::Timeout) {
        let Some(progress) = ask() else { continue };
        let text = line(&progress);
        width = width.max(text.len());
        // If the terminal has disappeared, nothing needs the output.
        let _ = write!(out, "\r{text:<width$}").and_then(|()| out.flush());
    }
    if width > 0 {
        let _ = write!(out, "\r{:width$}\r", "").and_then(|()| out.flush());
    }
}

/// The text for the current phase.
fn line(progress: &MountProgress) -> String {
    match progress.phase {
        MountPhase::Load => format!("Reading ZFS config: {}", progress.loaded),
        MountPhase::Mount => format!("Mounting ZFS filesystems: ({}/{})", progress.done, progress.total),
    }
}

/// How long each phase took, in OpenZFS's words.
fn phases(report: &MountReport) -> String {
    let tried = report.mounted + report.failures.len() as u64;
    format!(
        "Reading ZFS config: done. ({} ms)\nMounting ZFS filesystems: ({tried}/{}) ({} ms, {} ms other)\n",
        report.load_ms, report.total, report.mount_ms, report.other_ms
    )
}

#[cfg(test)]
mod tests;
