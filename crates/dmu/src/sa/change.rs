//! Changes of system attributes.
//!
//! # Theory
//! An attribute that keeps its length is changed in place. Any other change lays out all attributes
//! of the object again, in their order. As many as fit go into the bonus, and the others into the
//! spill block. The pointer to the spill block takes space of the bonus, unless all attributes fit
//! without one. Each order of attributes in an object set is a layout, which is created at its
//! first use.
//!
//! # Locks
//! The lock of the registry is shared while the attributes of an object change, and exclusive while
//! a layout is created. The caller makes sure that threads take turns when they change the
//! attributes of one object.

use super::Sa;
use crate::live::dirty::{Dirty, SpillBlock};
use crate::zap::{Normalization, Value, Zap};
use crate::{Dnode, Error, NewObject, Objset, Result, Tx};
use device::Block;
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::sa::{Attr, AttrNum, SaRegistry};
use ondisk::zap::ZapFlags;
use ondisk::{ByteOrder, Corrupt, DmuType, ObjNum, SPA_OLD_MAXBLOCKSIZE};
use std::borrow::Cow;

/// Objects of the attributes of an object set: the SA master node, and the two tables it names.
pub const SA_OBJECTS: u64 = 3;

/// A table that the SA master node names.
struct Table {
    name: &'static [u8],
    kind: DmuType,
}

const REGISTRY: Table = Table { name: b"REGISTRY", kind: DmuType::SA_ATTR_REGISTRATION };
const LAYOUTS: Table = Table { name: b"LAYOUTS", kind: DmuType::SA_ATTR_LAYOUTS };

/// Bytes of a block of the layouts where all objects have given numbers.
///
/// OpenZFS has 16 KiB there, of which a few layouts use a fiftieth. Each opening reads both blocks.
const LAYOUTS_BLOCK: u32 = 1 << 10;

/// Creates one of the tables: a micro ZAP, or a fat one for layouts under a given number, which are
/// arrays.
fn create_table(os: &Objset, tx: &Tx, kind: DmuType, object: Option<ObjNum>) -> Result<Zap> {
    let spec = NewObject::new(kind);
    let plain = ZapFlags::default();
    match object {
        Some(object) if kind == DmuType::SA_ATTR_LAYOUTS => {
            Zap::create_fat(os, tx, LAYOUTS_BLOCK, kind, object)
        }
        Some(object) => Zap::create_claim(os, tx, object, &spec, Normalization::NONE, plain),
        None => Zap::create(os, tx, &spec, Normalization::NONE, plain),
    }
}

/// An attribute and its new value. `None` removes the attribute.
pub type Change<'a> = (Attr, Option<&'a [u8]>);

/// The attributes of an object, in order and little-endian.
type All<'a> = Vec<(AttrNum, Cow<'a, [u8]>)>;

impl Sa {
    /// Creates an SA master node, in which every known attribute has its number (`SA_ATTRS`).
    ///
    /// Its objects get the numbers that are free, or the first [`SA_OBJECTS`] from `first` on.
    /// Returns the attributes and the number of the master node, which a file system stores as
    /// `SA_ATTRS`.
    ///
    /// # Errors
    /// * The errors of [changing a ZAP](Error#changing-a-zap).
    /// * [`Error::NoObjects`]: no object number is free.
    /// * The errors of [`Objset::claim_object`], if there is a `first`.
    pub fn create(os: &Objset, tx: &Tx, first: Option<ObjNum>) -> Result<(Sa, ObjNum)> {
        let at = |index| first.map(|first| ObjNum(first.0 + index));
        let master = create_table(os, tx, DmuType::SA_MASTER_NODE, at(0))?;
        let number = master.dnode().object();
        let sa = Sa::load(os, Some(number))?;
        for (index, table) in [(1, &REGISTRY), (2, &LAYOUTS)] {
            if first.is_some() {
                sa.link(tx, &master, table, at(index))?;
            }
        }
        sa.register(tx, &mut sa.reg.0.write(), &[])?;
        Ok((sa, number))
    }

    /// The ZAP that the master node names, created if there is none (`zap_create_link`).
    fn linked(&self, tx: &Tx, table: &Table) -> Result<Zap> {
        let Some(master) = &self.master else { return Err(Error::Fixed { objset: self.os.id() }) };
        let master = Zap::open(master)?;
        match master.lookup_u64(table.name)? {
            Some(object) => Zap::open(&self.os.dnode(ObjNum(object))?),
            None => self.link(tx, &master, table, None),
        }
    }

    fn link(&self, tx: &Tx, master: &Zap, table: &Table, object: Option<ObjNum>) -> Result<Zap> {
        let zap = create_table(&self.os, tx, table.kind, object)?;
        master.add(tx, table.name, &Value::from(zap.dnode().object().0))?;
        Ok(zap)
    }

    /// Gives numbers to the ZPL's attributes and to those of `changes`, if they have none.
    fn register(&self, tx: &Tx, reg: &mut SaRegistry, changes: &[Change<'_>]) -> Result<()> {
        let zap = self.linked(tx, &REGISTRY)?;
        let mut all = reg.clone();
        for (name, value) in all.register_known(|attr| changes.iter().any(|(a, _)| *a == attr)) {
            if zap.lookup_u64(name.as_bytes())? != Some(value) {
                zap.update(tx, name.as_bytes(), &Value::from(value))?;
            }
        }
        *reg = all;
        Ok(())
    }

    /// The numbers of these attributes. An attribute without a number gets one.
    fn numbers(&self, tx: &Tx, changes: &[Change<'_>]) -> Result<Vec<AttrNum>> {
        let find = |reg: &SaRegistry| changes.iter().map(|(a, _)| reg.num(*a)).collect::<Option<Vec<_>>>();
        if let Some(all) = find(&self.registry()) {
            return Ok(all);
        }
        let reg = &mut *self.reg.0.write();
        self.register(tx, reg, changes)?;
        Ok(find(reg).expect("every known attribute is registered now"))
    }

    /// Sets and removes attributes of an object (`sa_update`, `sa_bulk_update`, `sa_remove`).
    ///
    /// The object's bonus must be of type [`DmuType::SA`]. New attributes follow the existing ones,
    /// in the given order. Values are little-endian.
    ///
    /// Accounting reads owner, flags and project at fixed offsets. So the attributes of a file must
    /// begin in the order that OpenZFS uses.
    ///
    /// # Errors
    /// * The errors of [changing a ZAP](Error#changing-a-zap). [`Error::Corrupt`] also if the
    ///   object's attributes are bad, or its bonus is of another type.
    /// * [`Error::NoObjects`]: no object number is free for a table of the registry.
    /// * [`Error::Attributes`]: the attributes don't fit, or all layout numbers are taken.
    ///
    /// # Panics
    /// If a value does not have the length that the attribute has in every file.
    pub fn set(&self, dn: &Dnode, tx: &Tx, changes: &[Change<'_>]) -> Result<()> {
        let nums = self.numbers(tx, changes)?;
        for (num, (attr, value)) in nums.iter().zip(changes) {
            let fixed = self.registry().fixed_len(*num).map(usize::from);
            let ok = fixed.is_none() || value.is_none_or(|v| Some(v.len()) == fixed);
            assert!(ok, "{} has a fixed length", attr.name());
        }
        if self.set_in_place(dn, tx, &nums, changes)? {
            return Ok(());
        }
        let dn = dn.reload()?;
        let spill = dn.spill()?;
        let mut all = self.all(&dn, spill.as_ref())?;
        for (num, (_, value)) in nums.into_iter().zip(changes) {
            let at = all.iter().position(|(n, _)| *n == num);
            match (at, value) {
                (Some(i), Some(v)) => all[i].1 = Cow::Borrowed(*v),
                (Some(i), None) => drop(all.remove(i)),
                (None, Some(v)) => all.push((num, Cow::Borrowed(*v))),
                (None, None) => {}
            }
        }
        self.lay_out(&dn, tx, &all)
    }

    /// Gives an object exactly these attributes, in this order (`sa_replace_all_by_template`).
    ///
    /// # Errors
    /// Those of [`Sa::set`].
    ///
    /// # Panics
    /// If a value does not have the length that the attribute has in every file.
    pub fn replace(&self, dn: &Dnode, tx: &Tx, attrs: &[(Attr, &[u8])]) -> Result<()> {
        let changes: Vec<Change<'_>> = attrs.iter().map(|(a, v)| (*a, Some(*v))).collect();
        let nums = self.numbers(tx, &changes)?;
        let all: All<'_> = nums.into_iter().zip(attrs).map(|(n, (_, v))| (n, Cow::Borrowed(*v))).collect();
        for ((num, value), (attr, _)) in all.iter().zip(attrs) {
            let fixed = self.registry().fixed_len(*num).map(usize::from);
            assert!(fixed.is_none_or(|len| len == value.len()), "{} has a fixed length", attr.name());
        }
        self.lay_out(&dn.reload()?, tx, &all)
    }

    /// Changes attributes in place, if all are in the bonus and keep their length.
    fn set_in_place(&self, dn: &Dnode, tx: &Tx, nums: &[AttrNum], changes: &[Change<'_>]) -> Result<bool> {
        let reg = self.registry();
        dn.to_change()?.change_header(tx, |h| {
            if h.bonus_kind != DmuType::SA {
                let why = "the bonus holds no system attributes";
                return Err(dn.corrupt(Corrupt::Shape { what: "system attributes", why }));
            }
            if h.bonus.is_empty() {
                return Ok(false);
            }
            let at = reg.locate(&h.bonus).map_err(|e| dn.corrupt(e))?;
            let mut places = Vec::with_capacity(changes.len());
            for (num, (_, value)) in nums.iter().zip(changes) {
                let l = at.iter().find(|l| l.num == *num && l.order == ByteOrder::Little);
                match (l, value) {
                    (Some(l), Some(v)) if v.len() == l.range.len() => places.push((l.range.clone(), *v)),
                    _ => return Ok(false),
                }
            }
            for (range, value) in places {
                h.bonus[range].copy_from_slice(value);
            }
            Ok(true)
        })?
    }

    /// All attributes of an object, in order.
    fn all<'a>(&self, dn: &'a Dnode, spill: Option<&'a Block>) -> Result<All<'a>> {
        let reg = self.registry();
        let mut all = All::new();
        for part in [Some(dn.bonus()), spill.map(|b| &b[..])].into_iter().flatten().filter(|p| !p.is_empty())
        {
            for l in reg.locate(part).map_err(|e| dn.corrupt(e))? {
                let mut value = Cow::Borrowed(&part[l.range]);
                if l.order != ByteOrder::Little {
                    l.swap.to_native(l.order, value.to_mut());
                }
                all.push((l.num, value));
            }
        }
        Ok(all)
    }

    /// The layout of these attributes, created if there is none.
    fn layout(&self, dn: &Dnode, tx: &Tx, attrs: &[(AttrNum, Cow<'_, [u8]>)]) -> Result<u16> {
        let nums: Vec<AttrNum> = attrs.iter().map(|(n, _)| *n).collect();
        if let Ok(num) = self.registry().layout_of(&nums) {
            return Ok(num);
        }
        let reg = &mut *self.reg.0.write();
        let num = match reg.layout_of(&nums) {
            Ok(num) => return Ok(num),
            Err(num) => num.ok_or_else(|| no_room(dn))?,
        };
        let zap = self.linked(tx, &LAYOUTS)?;
        let words: Vec<u64> = nums.iter().map(|n| n.0.into()).collect();
        let name = num.to_string();
        zap.update(tx, name.as_bytes(), &Value::integers(2, &words))?;
        let raw: Vec<u16> = nums.iter().map(|n| n.0).collect();
        reg.add_layout(name.as_bytes(), &raw).map_err(|e| dn.corrupt(e))?;
        Ok(num)
    }

    /// Writes all attributes of an object.
    fn lay_out(&self, dn: &Dnode, tx: &Tx, all: &[(AttrNum, Cow<'_, [u8]>)]) -> Result<()> {
        let lens: Vec<(AttrNum, usize)> = all.iter().map(|(n, v)| (*n, v.len())).collect();
        if lens.iter().any(|(_, len)| *len > usize::from(u16::MAX)) {
            return Err(no_room(dn));
        }
        let phys = dn.phys();
        let room = ondisk::DnodePhys::tail_len(phys.num_slots()) - phys.blkptrs.len() * BLKPTR_SIZE;
        let (fits, spilled) = {
            let reg = self.registry();
            match reg.fit(&lens, room).0 {
                n if n == all.len() => (n, 0),
                _ => {
                    let n = reg.fit(&lens, room.checked_sub(BLKPTR_SIZE).ok_or_else(|| no_room(dn))?).0;
                    let (rest, len) = reg.fit(&lens[n..], SPA_OLD_MAXBLOCKSIZE as usize);
                    if n + rest < all.len() {
                        return Err(no_room(dn));
                    }
                    (n, len)
                }
            }
        };
        let (in_bonus, in_spill) = all.split_at(fits);
        // An empty bonus has no layout.
        let bonus = if in_bonus.is_empty() {
            Vec::new()
        } else {
            let layout = self.layout(dn, tx, in_bonus)?;
            self.registry().pack(layout, in_bonus)
        };
        let spill = if in_spill.is_empty() {
            None
        } else {
            let layout = self.layout(dn, tx, in_spill)?;
            let mut raw = self.registry().pack(layout, in_spill);
            raw.resize(spilled.next_multiple_of(512), 0);
            Some(Block::copy_of(&raw))
        };
        let before = dn.spill()?;
        dn.to_change()?.change(tx, |d: &mut Dirty| {
            let h = d.header.as_mut().expect("a changed object is not free");
            h.bonus_kind = DmuType::SA;
            h.bonus = bonus;
            h.has_spill = spill.is_some();
            if spill != before {
                tx.count(spill.as_ref().map_or(0, |b| b.len() as u64));
                d.spill = Some(spill.map(SpillBlock::Plain));
            }
        })
    }
}

fn no_room(dn: &Dnode) -> Error {
    Error::Attributes { objset: dn.objset_id(), object: dn.object() }
}
