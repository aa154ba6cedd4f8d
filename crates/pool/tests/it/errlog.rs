//! Error logs that are damaged themselves.

use crate::common::open;
use dmu::{Objset, Tx};
use ondisk::scan::ErrBookmark;
use ondisk::{DmuType, ObjNum, Txg, mos};
use pool::Mos;
use pool::errlog::ErrLog;

fn entry(objset: u64, object: u64) -> ErrBookmark {
    ErrBookmark { objset, object, level: 0, blkid: 0, birth: Some(7) }
}

/// Goal: damage in an error log leaves its other entries readable.
///
/// Forgetting a dataset, promoting, rotating and merging free the log's own objects and no other.
#[test]
fn a_damaged_log_costs_nothing_else() {
    let f = testkit::load("single-lz4");
    let o = open(f.images());
    let os =
        Objset::open_live(o.cache.clone(), 0, &o.mos.objset().root_bp(), zio::ReadOptions::demand()).unwrap();
    let (mos, tx) = (Mos::open(os).unwrap(), Tx::new(Txg(o.txg + 1), None));
    let there = |object: ObjNum| mos.objset().dnode(object).is_ok_and(|dnode| dnode.kind() != DmuType::NONE);
    let history = mos.dir(mos::HISTORY).unwrap().unwrap();
    for round in 0..4 {
        for log in [ErrLog::Last, ErrLog::Scrub] {
            mos.errlog_add(&tx, log, &[entry(1, 10), entry(2, 20)]).unwrap();
        }
        let last = mos.dir(mos::ERRLOG_LAST).unwrap().unwrap();
        let inner = ObjNum(mos.u64(last, "1").unwrap().unwrap());
        // An invalid name, a name that leads to an object which is no log, and an invalid bookmark.
        mos.set_word(&tx, last, "zebra", inner.0).unwrap();
        mos.set_word(&tx, last, "3", history.0).unwrap();
        mos.set_string(&tx, inner, "no:bookmark", "").unwrap();
        assert_eq!(mos.errlog(ErrLog::Last, true).unwrap(), [entry(1, 10), entry(2, 20)]);
        assert_eq!(mos.errlog_count(ErrLog::Last, true).unwrap(), 3);
        match round {
            0 => {
                mos.errlog_forget(&tx, 3);
                mos.errlog_forget(&tx, 1);
                assert!(!there(inner), "it was the log's own");
                assert_eq!(mos.errlog(ErrLog::Last, true).unwrap(), [entry(2, 20)]);
            }
            1 => {
                mos.errlog_promote(&tx, 1, 9, 8).unwrap();
                assert_eq!(mos.errlog(ErrLog::Last, true).unwrap(), [entry(2, 20), entry(9, 10)]);
            }
            2 => {
                mos.errlog_rotate(&tx, true).unwrap();
                assert!(!there(last) && !there(inner));
                assert!(mos.dir(mos::ERRLOG_SCRUB).unwrap().is_none());
                assert_eq!(mos.errlog(ErrLog::Last, true).unwrap().len(), 2);
            }
            _ => {
                mos.errlog_merge(&tx, true).unwrap();
                assert!(there(last) && mos.dir(mos::ERRLOG_SCRUB).unwrap().is_none());
            }
        }
        assert!(there(history), "round {round}");
        mos.errlog_rotate(&tx, true).unwrap();
        mos.errlog_rotate(&tx, true).unwrap();
        assert!(mos.dir(mos::ERRLOG_LAST).unwrap().is_none());
    }
}
