//! A whole pool, in the order of OpenZFS's `dump_zpool`.

use super::ctx::{Ctx, Run};
use super::features::{Users, verify_spacemaps};
use super::mosrefs::{self, MosRefs};
use super::opened::{Opened, load_key};
use super::{
    blocks, bplists, brt, config, ddt, dtl, history, io_stats, livelist, metaslabs, objset, text, uberblock,
};
use dsl::{Dataset, Dir};
use ondisk::{Uberblock, mos};

/// Shows what the options choose (`dump_zpool`).
///
/// Returns the exit code: not 0 if a check failed.
pub fn run(cx: &mut Ctx<'_>, pool: &Opened, chosen: &[u64]) -> Run<i32> {
    let o = cx.opts.clone();
    if o.has('y') {
        cx.part(|cx| livelist::validate(cx, pool))?;
    }
    if o.count('C') > 1 && !o.has('e') {
        cx.out.put("\nCached configuration:\n");
        text::nvlist(cx.out, &pool.spa.config().nvlist, 8);
    }
    if o.has('C') {
        cx.part(|cx| config::of_mos(cx, pool.spa.mos()))?;
    }
    if o.has('u') {
        uberblock::current(cx, &pool.spa.uberblock(), "\nUberblock:\n");
    }
    if o.has('D') {
        cx.part(|cx| ddt::show(cx, pool))?;
    }
    if o.has('T') {
        cx.part(|cx| brt::show(cx, pool))?;
    }
    let maps = o.count('d') > 2 || o.has('m');
    if maps {
        cx.part(|cx| metaslabs::show(cx, pool, chosen))?;
    }
    if o.has('M') {
        cx.part(|cx| metaslabs::groups(cx, pool, o.count('M') > 1))?;
    }
    if maps {
        cx.part(|cx| metaslabs::logs(cx, pool))?;
    }
    let mut code = 0;
    if o.has('d') || o.has('i') {
        code = datasets(cx, pool)?;
    }
    if code == 0 && (o.has('b') || o.has('c')) {
        code = cx.part(|cx| blocks::show(cx, pool))?;
    }
    if code == 0 {
        code = cx.part(|cx| verify_spacemaps(cx, pool))?;
    }
    if o.has('s') {
        cx.part(|cx| io_stats::show(cx, pool))?;
    }
    if o.has('h') {
        cx.part(|cx| history::show(cx, pool))?;
    }
    if code == 0 {
        code = cx.part(|cx| checkpoint(cx, pool))?;
    }
    Ok(code)
}

fn datasets(cx: &mut Ctx<'_>, pool: &Opened) -> Run<i32> {
    let mut refs = MosRefs::default();
    let mut users = Users::default();
    cx.part(|cx| objset::mos(cx, pool, &[], None))?;
    if cx.opts.count('d') >= 3 {
        cx.part(|cx| lists(cx, pool))?;
        cx.part(|cx| dtl::show(cx, pool))?;
    }
    cx.part(|cx| below(cx, pool, &pool.dsl.root()?, &mut refs, &mut users))?;
    let mut code = 0;
    if !cx.opts.has('L') && !cx.trouble {
        code = cx.part(|cx| {
            origin(cx, pool)?;
            mosrefs::check(cx, pool, refs)
        })?;
    }
    let wrong = users.verify(cx, pool);
    if wrong != 0 {
        code = wrong;
    }
    if code == 0 {
        code = cx.part(|cx| users.verify_removal(cx, pool))?;
    }
    Ok(code)
}

/// Shows the lists of blocks that wait to be freed.
fn lists(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let mos = pool.spa.mos();
    for (name, title) in [
        (mos::SYNC_BPOBJ, "Deferred frees"),
        (mos::FREE_BPOBJ, "Pool snapshot frees"),
        (mos::OBSOLETE_BPOBJ, "Pool obsolete blocks"),
    ] {
        if let Some(object) = mos.dir(name)? {
            bplists::bpobj(cx, mos, object, title)?;
        }
    }
    if let Some(tree) = mos.dir(mos::BPTREE_OBJ)?
        && pool.spa.features().is_active("com.delphix:async_destroy")
    {
        bplists::bptree(cx, mos, tree, "Pool dataset frees")?;
    }
    Ok(())
}

/// Shows the datasets below a directory (`dmu_objset_find`).
///
/// The order is: children, snapshots, the head dataset, each in the order of its ZAP.
fn below(cx: &mut Ctx<'_>, pool: &Opened, dir: &Dir, refs: &mut MosRefs, users: &mut Users) -> Run {
    for (name, object) in dir.child_objects()? {
        if name.starts_with('$') {
            continue;
        }
        // A name has at most 256 bytes, which bounds the recursion.
        cx.part(|cx| below(cx, pool, &dir.open_child(&name, object)?, refs, users))?;
    }
    let Some(head) = dir.head()? else { return Ok(()) };
    for (name, _) in head.snapshot_objects()? {
        cx.part(|cx| match head.snapshot(&name)? {
            Some(snap) => one(cx, pool, &snap, refs, users),
            None => Ok(()),
        })?;
    }
    one(cx, pool, &head, refs, users)
}

fn one(cx: &mut Ctx<'_>, pool: &Opened, ds: &Dataset, refs: &mut MosRefs, users: &mut Users) -> Run {
    load_key(cx, pool, ds)?;
    cx.part(|_| users.dataset(ds))?;
    cx.part(|cx| objset::dataset(cx, pool, ds, &[], Some(refs)))
}

/// Shows the deadlists of the origin of all datasets (`$ORIGIN`).
fn origin(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    if cx.opts.count('d') < 3 {
        return Ok(());
    }
    let Some(dir) = pool.dsl.root()?.child("$ORIGIN")? else { return Ok(()) };
    let Some(head) = dir.head()? else { return Ok(()) };
    let mos = pool.spa.mos();
    for ds in std::iter::once(head.clone()).chain(head.snapshots()?) {
        let object = ds.phys().deadlist_obj;
        if object != 0 {
            bplists::deadlist_of(cx, mos, ondisk::ObjNum(object), "Deadlist", None)?;
        }
    }
    Ok(())
}

/// Shows the checkpoint, if the pool has one (`verify_checkpoint`).
fn checkpoint(cx: &mut Ctx<'_>, pool: &Opened) -> Run<i32> {
    if !pool.spa.features().is_active("com.delphix:zpool_checkpoint") {
        return Ok(0);
    }
    let Some(words) = pool.spa.mos().checkpoint()? else {
        if !cx.opts.has('L') {
            cx.out.put("\nPartially discarded checkpoint state found:\n");
        }
        return Ok(0);
    };
    let raw: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let ub = Uberblock::decode(&raw)?;
    uberblock::current(cx, &ub, "\nCheckpointed uberblock found:\n");
    if ub.checkpoint_txg.0 == 0 {
        cx.out.put("\nub_checkpoint_txg not set in checkpointed uberblock\n");
        return Ok(3);
    }
    Ok(0)
}
