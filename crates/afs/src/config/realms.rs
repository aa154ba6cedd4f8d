//! krb.conf and krb.excl: which Kerberos realms are the cell's own.

use rx::security::Identity;
use rx::security::rxkad::SUPERUSER;

use super::{Superusers, lines, word};

/// The realms whose users are those of the cell. The cell's own name always is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Realms {
    cell: String,
    realms: Vec<String>,
    /// Users of these realms that are foreign all the same, as `NAME@REALM`.
    excluded: Vec<String>,
}

impl Realms {
    /// Those of a cell, by the content of krb.conf and krb.excl. Either may be empty.
    ///
    /// The first line of krb.conf has the realms, and each line of krb.excl a user. OpenAFS:
    /// `read_local_realms`, `read_local_exclusions`.
    pub fn parse(cell: &str, krb_conf: &[u8], krb_excl: &[u8]) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut realms = Vec::new();
        let mut rest = lines(krb_conf).next().map_or(&[][..], |(_, line)| line);
        loop {
            let (realm, after) = word(rest);
            if realm.is_empty() {
                break;
            }
            realms.push(text(realm));
            rest = after;
        }
        let users = lines(krb_excl).map(|(_, line)| word(line).0).filter(|user| !user.is_empty());
        Self { cell: cell.to_owned(), realms, excluded: users.map(text).collect() }
    }

    /// Whether a caller is of the cell. With the empty realm it is, as for tickets made from the
    /// cell's key (`afsconf_IsLocalRealmMatch`).
    fn is_local(&self, name: &str, realm: &str) -> bool {
        let is = |all: &[String], one: &str| all.iter().any(|known| known.eq_ignore_ascii_case(one));
        realm.is_empty()
            || self.cell.eq_ignore_ascii_case(realm)
            || is(&self.realms, realm) && !is(&self.excluded, &format!("{name}@{realm}"))
    }

    /// The name by which the protection servers know a caller: `user`, `user.instance`, or with
    /// `@realm` if the realm is not one of the cell's own. `None`: the caller is anonymous, because
    /// its name could pass for one of another realm.
    ///
    /// OpenAFS: `getPeerDetails`.
    pub fn name_of(&self, identity: &Identity) -> Option<String> {
        let (name, realm) = (identity.name.to_ascii_lowercase(), identity.cell.to_ascii_lowercase());
        match self.is_local(&name, &realm) {
            _ if name.contains(['@', '\0']) => None,
            true => Some(name),
            false => Some(format!("{name}@{realm}")),
        }
    }

    /// Whether a caller may change volumes: it has the cell's own key, or is listed (in UserList),
    /// with `@realm` if it is foreign (`kerberosSuperUser`).
    pub fn is_superuser(&self, identity: &Identity, superusers: &Superusers) -> bool {
        let Identity { name, cell: realm, .. } = identity;
        if name.contains(['@', '\0']) {
            return false;
        }
        let listed = |name: &str| superusers.has(name.as_bytes());
        match self.is_local(name, realm) {
            true => name == SUPERUSER && realm.is_empty() || listed(name),
            false => {
                listed(&format!("{name}@{realm}"))
                    || listed(&format!("{name}@{}", realm.to_ascii_lowercase()))
            }
        }
    }
}
