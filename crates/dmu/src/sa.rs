//! System attributes of objects: the registry of an object set, and reads from bonus and spill
//! block.
//!
//! # Theory
//! The numbers and layouts of attributes are the same for a whole object set, so [`Sa`] loads them
//! once. [`Sa::attrs`] then finds a file's attributes without another read. Only an attribute that
//! is not in the bonus costs a read, of the spill block.

mod change;

use crate::zap::Zap;
use crate::{Dnode, Objset, Result};
use device::Block;
use observe::lock::RwLock;
use ondisk::sa::{Attr, AttrSwap, Located, SaRegistry};
use ondisk::{ByteOrder, Corrupt, ObjNum};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The attributes and layouts of an object set (`sa_os_t`). Clones share them.
#[derive(Debug, Clone)]
pub struct Sa {
    os: Objset,
    /// The SA master node.
    master: Option<Dnode>,
    /// The registry. All handles of a live object set share it.
    reg: Arc<Shared>,
}

#[derive(Debug)]
struct Shared(RwLock<SaRegistry>);

impl Sa {
    /// Loads the registry from the SA master node (`sa_setup`).
    ///
    /// Without a master node the registry is empty, as in file systems before system attributes.
    ///
    /// # Errors
    /// * The errors of [reading](crate::Error#reading). [`crate::Error::Corrupt`] also if the
    ///   registry contradicts itself.
    /// * [`crate::Error::NoSuchObject`]: the master node, or a table that it names, doesn't exist.
    pub fn load(os: &Objset, master: Option<ObjNum>) -> Result<Sa> {
        let Some(master) = master else {
            let reg = Arc::new(Shared(RwLock::new(SaRegistry::new())));
            return Ok(Sa { os: os.clone(), master: None, reg });
        };
        let master = os.dnode(master)?;
        let load = || Ok(Shared(RwLock::new(Self::read(os, &master)?)));
        let reg = match master.live_node() {
            Some(live) => live.user(load)?,
            None => Arc::new(load()?),
        };
        Ok(Sa { os: os.clone(), master: Some(master), reg })
    }

    fn read(os: &Objset, master: &Dnode) -> Result<SaRegistry> {
        let mut reg = SaRegistry::new();
        let master = Zap::open(master)?;
        if let Some(obj) = master.lookup_u64(b"REGISTRY")? {
            let zap = Zap::open(&os.dnode(ObjNum(obj))?)?;
            for e in zap.entries() {
                let e = e?;
                let bad = Corrupt::Shape { what: "SA registry", why: "a registration is not one integer" };
                let v = e.value.as_u64().ok_or_else(|| zap.dnode().corrupt(bad))?;
                reg.register(e.name(), v).map_err(|c| zap.dnode().corrupt(c))?;
            }
            // The registry now holds what is in these two tables. They are two thirds of the cached
            // blocks of an idle file system.
            zap.dnode().let_go();
        }
        if let Some(obj) = master.lookup_u64(b"LAYOUTS")? {
            let zap = Zap::open(&os.dnode(ObjNum(obj))?)?;
            for e in zap.entries() {
                let e = e?;
                let bad =
                    Corrupt::Shape { what: "SA layouts", why: "a layout is not an array of 16-bit integers" };
                if e.value.int_size() != 2 {
                    return Err(zap.dnode().corrupt(bad));
                }
                let attrs: Vec<u16> = e.value.iter().map(|v| v as u16).collect();
                reg.add_layout(e.name(), &attrs).map_err(|c| zap.dnode().corrupt(c))?;
            }
            zap.dnode().let_go();
        }
        Ok(reg)
    }

    /// The registry.
    pub fn registry(&self) -> impl Deref<Target = SaRegistry> + '_ {
        self.reg.0.read()
    }

    /// The attributes of `dn`, whose bonus must be of type [`ondisk::DmuType::SA`]
    /// (`sa_handle_get`).
    ///
    /// # Errors
    /// * [`crate::Error::Corrupt`]: the bonus does not match its layout.
    pub fn attrs(&self, dn: &Dnode) -> Result<Attrs> {
        let bonus = self.registry().locate(dn.bonus()).map_err(|e| dn.corrupt(e))?;
        Ok(Attrs { sa: self.clone(), dn: dn.clone(), bonus, spill: OnceLock::new() })
    }
}

pub use change::{Change, SA_OBJECTS};

type Spill = Option<(Block, Vec<Located>)>;

/// The attributes of one object (`sa_handle_t`).
#[derive(Debug)]
pub struct Attrs {
    sa: Sa,
    dn: Dnode,
    bonus: Vec<Located>,
    spill: OnceLock<Spill>,
}

impl Attrs {
    fn spill(&self) -> Result<&Spill> {
        if let Some(s) = self.spill.get() {
            return Ok(s);
        }
        let spill = match self.dn.spill()? {
            None => None,
            Some(block) => {
                let at = self.sa.registry().locate(&block).map_err(|e| self.dn.corrupt(e))?;
                Some((block, at))
            }
        };
        Ok(self.spill.get_or_init(|| spill))
    }

    /// The bytes of an attribute, with little-endian words (`sa_lookup`). `None` if the object
    /// doesn't have it.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for the spill block.
    pub fn get(&self, attr: Attr) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.find(attr)?.map(|(raw, l)| {
            if l.order == ByteOrder::Little || l.swap == AttrSwap::Uint8 {
                return Cow::Borrowed(raw);
            }
            let mut copy = raw.to_vec();
            l.swap.to_native(l.order, &mut copy);
            Cow::Owned(copy)
        }))
    }

    /// The attributes in the bonus that are known and stored little-endian, in their order. It
    /// costs less than to look for each of them.
    pub fn in_bonus(&self) -> impl Iterator<Item = (Attr, &[u8])> {
        let bonus = self.dn.bonus();
        let here = self.bonus.iter().filter(|l| l.order == ByteOrder::Little);
        here.filter_map(|l| Some((l.attr?, &bonus[l.range.clone()])))
    }

    /// The bytes of an attribute as they are stored, and the byte order of its words.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for the spill block.
    pub fn raw(&self, attr: Attr) -> Result<Option<(&[u8], ByteOrder)>> {
        Ok(self.find(attr)?.map(|(raw, l)| (raw, l.order)))
    }

    fn find(&self, attr: Attr) -> Result<Option<(&[u8], &Located)>> {
        let is = |l: &&Located| l.attr == Some(attr);
        if let Some(l) = self.bonus.iter().find(is) {
            return Ok(Some((&self.dn.bonus()[l.range.clone()], l)));
        }
        let Some((block, at)) = self.spill()? else { return Ok(None) };
        Ok(at.iter().find(is).map(|l| (&block[l.range.clone()], l)))
    }

    /// An attribute of one word.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for the spill block.
    pub fn u64(&self, attr: Attr) -> Result<Option<u64>> {
        Ok(self.get(attr)?.and_then(|b| b.first_chunk::<8>().map(|w| u64::from_le_bytes(*w))))
    }

    /// An attribute of two words: a time in seconds and nanoseconds.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for the spill block.
    pub fn pair(&self, attr: Attr) -> Result<Option<[u64; 2]>> {
        Ok(self.get(attr)?.and_then(|b| {
            let (words, _) = b.as_chunks::<8>();
            Some([u64::from_le_bytes(*words.first()?), u64::from_le_bytes(*words.get(1)?)])
        }))
    }
}
