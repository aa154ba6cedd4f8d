//! When a heartbeat is written, and when it gives up.

use crate::multihost::*;
use ondisk::label::MMP_BLOCKS_PER_LABEL;

fn uberblock(txg: u64) -> Uberblock {
    Uberblock {
        order: ondisk::ByteOrder::Little,
        version: 5000,
        txg: ondisk::Txg(txg),
        guid_sum: 1,
        timestamp: 100,
        rootbp: [0; 128],
        software_version: 5000,
        mmp: None,
        checkpoint_txg: ondisk::Txg(0),
        raidz_reflow: Default::default(),
    }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Goal: an owner whose writes fail for ten intervals requests suspension, one whose writes succeed
/// goes on. After a suspension it has all of that time again.
#[test]
fn silence_suspends() {
    let heart = Heart::new(uberblock(9));
    assert_eq!(heart.tick(false, secs(5)), Tick::Idle);
    assert_eq!(heart.fields(false, secs(5)), Mmp { delay_ns: 0, config: 0 });
    heart.fields(true, secs(100));
    assert_eq!(heart.tick(false, secs(110)), Tick::Write);
    heart.done(true, 2, secs(110));
    heart.done(false, 2, secs(120));
    assert_eq!(heart.tick(false, secs(120)), Tick::Write);
    assert_eq!(heart.tick(false, secs(121)), Tick::Suspend);
    assert_eq!(heart.tick(true, secs(122)), Tick::Idle);
    assert_eq!(heart.tick(false, secs(300)), Tick::Write);
    heart.synced(&uberblock(10), 2, secs(305));
    assert_eq!(heart.tick(false, secs(315)), Tick::Write);
}

/// Goal: writes of one second differ by sequence numbers, which restart with the second and with
/// the txg. Each write gives the interval, and when the owner gives up.
#[test]
fn writes_can_be_told_apart() {
    let heart = Heart::new(uberblock(9));
    heart.fields(true, secs(1));
    let seen = |time| {
        let ub = heart.next(time);
        let mmp = ub.mmp.unwrap();
        assert_eq!((mmp.interval_ms(), mmp.fail_intervals()), (Some(1000), Some(10)));
        assert!(mmp.delay_ns > 0);
        (ub.txg.0, ub.timestamp, mmp.seq().unwrap())
    };
    assert_eq!([seen(100), seen(100), seen(101)], [(9, 100, 1), (9, 100, 2), (9, 101, 1)]);
    heart.synced(&uberblock(10), 1, secs(2));
    assert_eq!([seen(100), seen(100)], [(10, 100, 1), (10, 100, 2)]);
    assert_eq!(MMP_BLOCKS_PER_LABEL, 1);
}
