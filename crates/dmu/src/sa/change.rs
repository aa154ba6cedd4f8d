//! Changing system attributes.
//!
//! # Theory
//! Attributes of the length that they had are changed where they are. Any other change lays all of the object's attributes out anew, in the
//! order that they have: into the bonus as many as fit beside the spill block's pointer, or all if they fit without one, the rest into the spill block. Each order of attributes
//! that an object set uses is a layout, made when first used.
//!
//! # Locks
//! The registry's, for reading while an object's attributes are changed, and alone while a layout is made. Who changes attributes
//! of one object from several threads must see to it that they take turns.

use super::Sa;
use crate::live::dirty::Dirty;
use crate::zap::{Normalization, Value, Zap};
use crate::{Dnode, Error, NewObject, Objset, Result, Tx};
use device::Block;
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::sa::{Attr, AttrNum, SaRegistry};
use ondisk::zap::ZapFlags;
use ondisk::{ByteOrder, Corrupt, DmuType, ObjNum, SPA_OLD_MAXBLOCKSIZE};
use std::borrow::Cow;

/// An attribute's value; `None` removes it.
pub type Change<'a> = (Attr, Option<&'a [u8]>);

/// The attributes of an object in order, little-endian.
type All<'a> = Vec<(AttrNum, Cow<'a, [u8]>)>;

impl Sa {
    /// A new SA master node, whose number a file system keeps as `SA_ATTRS`, and its attributes, which all get their numbers at once.
    ///
    /// # Errors
    /// As making objects fails.
    pub fn create(os: &Objset, tx: &Tx) -> Result<(Sa, ObjNum)> {
        let master = Zap::create_kind(os, tx, DmuType::SA_MASTER_NODE)?;
        let number = master.dnode().object();
        let sa = Sa::load(os, Some(number))?;
        sa.register(tx, &mut sa.reg.0.write())?;
        Ok((sa, number))
    }

    /// The ZAP that the master node names so, made if there is none (`zap_create_link`).
    fn linked(&self, tx: &Tx, name: &[u8], kind: DmuType) -> Result<Zap> {
        let Some(master) = &self.master else { return Err(Error::Fixed { objset: self.os.id() }) };
        let master = Zap::open(master)?;
        if let Some(object) = master.lookup_u64(name)? {
            return Zap::open(&self.os.dnode(ObjNum(object))?);
        }
        let zap = Zap::create(&self.os, tx, &NewObject::new(kind), Normalization::NONE, ZapFlags::default())?;
        master.add(tx, name, &Value::from(zap.dnode().object().0))?;
        Ok(zap)
    }

    /// Gives numbers to the attributes that have none.
    fn register(&self, tx: &Tx, reg: &mut SaRegistry) -> Result<()> {
        let zap = self.linked(tx, b"REGISTRY", DmuType::SA_ATTR_REGISTRATION)?;
        let mut all = reg.clone();
        for (name, value) in all.register_known() {
            if zap.lookup_u64(name.as_bytes())? != Some(value) {
                zap.update(tx, name.as_bytes(), &Value::from(value))?;
            }
        }
        *reg = all;
        Ok(())
    }

    /// The numbers of these attributes; those that have none get one.
    fn numbers(&self, tx: &Tx, changes: &[Change<'_>]) -> Result<Vec<AttrNum>> {
        let find = |reg: &SaRegistry| changes.iter().map(|(a, _)| reg.num(*a)).collect::<Option<Vec<_>>>();
        if let Some(all) = find(&self.registry()) {
            return Ok(all);
        }
        let reg = &mut *self.reg.0.write();
        self.register(tx, reg)?;
        Ok(find(reg).expect("every known attribute is registered now"))
    }

    /// Sets and removes attributes of an object, whose bonus must be of type [`DmuType::SA`]; new ones come behind those that it has, in
    /// the order given (`sa_update`, `sa_bulk_update`, `sa_remove`). Values are little-endian.
    ///
    /// Accounting reads owner, flags and project from fixed places: a file's attributes must begin as those of OpenZFS's
    /// files do.
    ///
    /// # Errors
    /// [`Error::Attributes`] if they have no room; [`Error::Corrupt`] if the object's attributes are bad, or its bonus is of another
    /// type; as reading the spill block fails.
    ///
    /// # Panics
    /// If a value hasn't the length that the attribute has in every file.
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
    /// As [`Sa::set`].
    ///
    /// # Panics
    /// As [`Sa::set`].
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

    /// Changes attributes where they are, if all are in the bonus and keep their length.
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

    /// All attributes of an object in order.
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

    /// The layout of these attributes, made if there is none.
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
        let zap = self.linked(tx, b"LAYOUTS", DmuType::SA_ATTR_LAYOUTS)?;
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
        // With nothing in it, a bonus has no layout either.
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
                d.spill = Some(spill);
            }
        })
    }
}

fn no_room(dn: &Dnode) -> Error {
    Error::Attributes { objset: dn.objset_id(), object: dn.object() }
}
