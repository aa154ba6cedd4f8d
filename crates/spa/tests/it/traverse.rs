//! The roots of a traversal in a pool with a damaged dataset.

use dsl::traverse::pool_roots;
use fuzzing::graft::Graft;
use ondisk::BlkId;
use ondisk::dnode::DNODE_MIN_SIZE;
use spa::import::{Claim, Options, SystemClock, import};
use spa::{Host, Spa, discover};

fn open(graft: &Graft) -> Spa {
    let found = discover(&[graft.image()]);
    let options = Options { claim: Claim::Nothing, ..Options::default() };
    import(&found.pools[0], &options, &Host::of_system(), &SystemClock).expect("it imports")
}

/// Goal: a dataset with a damaged dnode is reported once, and the roots before and after it are
/// found.
#[test]
fn a_bad_dataset_hides_no_other_root() {
    let mut graft = Graft::open(&testkit::load("dedup-fast"));
    let spa = open(&graft);
    let mos = spa.mos().objset();
    let mut want: Vec<u64> = Vec::new();
    want.extend(pool_roots(mos, |e| panic!("it is sound: {e}")).iter().map(|root| root.objset));
    let object = want.remove(want.len() / 2);
    let per = mos.meta_dnode().block_size() / DNODE_MIN_SIZE as u64;
    let block = mos.meta_dnode().block(BlkId(object / per)).expect("it is sound").expect("it is no hole");
    let dnode = &block[(object % per) as usize * DNODE_MIN_SIZE..][..DNODE_MIN_SIZE];
    // More levels than are possible.
    let bad = [&dnode[..2], &[200], &dnode[3..]].concat();
    graft.replace(&[(dnode, &bad)]);
    let spa = open(&graft);
    let mut failed = 0;
    let roots = pool_roots(spa.mos().objset(), |_| failed += 1);
    assert_eq!((roots.iter().map(|root| root.objset).collect::<Vec<_>>(), failed), (want, 1));
}
