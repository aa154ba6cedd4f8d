//! Blocks that were found damaged.

use crate::{Error, Mos, Result};
use ondisk::scan::ErrBookmark;
use ondisk::{ObjNum, mos};

/// Which of the two error logs: a scrub fills the one and, when it ends, makes it the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrLog {
    /// Errors met since the last scrub ended.
    Last,
    /// Errors of the running scrub.
    Scrub,
}

impl Mos {
    /// The entries of an error log. With `head_errlog` (the feature) the log is a ZAP per head dataset, and the
    /// bookmarks carry births.
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for a name that is no bookmark.
    pub fn errlog(&self, which: ErrLog, head_errlog: bool) -> Result<Vec<ErrBookmark>> {
        let name = match which {
            ErrLog::Last => mos::ERRLOG_LAST,
            ErrLog::Scrub => mos::ERRLOG_SCRUB,
        };
        let Some(log) = self.dir(name)? else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        for e in self.entries(log)? {
            let e = e?;
            if !head_errlog {
                out.push(ErrBookmark::parse(&e.name).map_err(Error::corrupt(log))?);
                continue;
            }
            let head = u64::from_str_radix(&e.name_lossy(), 16).map_err(|_| Error::Corrupt {
                object: log,
                source: ondisk::Corrupt::Shape { what: "error log", why: "a name is no dataset" },
            })?;
            let inner = ObjNum(e.value.first().unwrap_or(0));
            for e in self.entries(inner)? {
                out.push(ErrBookmark::parse_head(head, &e?.name).map_err(Error::corrupt(inner))?);
            }
        }
        out.sort_unstable();
        Ok(out)
    }
}
