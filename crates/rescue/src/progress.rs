//! The progress line of a copy.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Files and bytes so far, drawn only on a terminal.
pub struct Progress {
    bar: ProgressBar,
    files: u64,
}

impl Progress {
    /// A progress line on standard error, if `shown`. `total` is in bytes.
    pub fn new(shown: bool, total: Option<u64>) -> Progress {
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => {
                "{bar:20} {binary_bytes:>11} of {binary_total_bytes} {binary_bytes_per_sec:>13}  {wide_msg}"
            }
            None => "{spinner} {binary_bytes:>11} {binary_bytes_per_sec:>13}  {wide_msg}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        Progress { bar, files: 0 }
    }

    /// Counts a file and shows its path.
    pub fn file(&mut self, path: &[u8]) {
        self.files += 1;
        self.bar.set_message(String::from_utf8_lossy(path).into_owned());
    }

    /// Counts copied bytes.
    pub fn bytes(&self, n: u64) {
        self.bar.inc(n);
    }

    /// Runs `f`, which writes to the terminal, without mixing its output with the line.
    pub fn suspend(&self, f: impl FnOnce()) {
        self.bar.suspend(f);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
