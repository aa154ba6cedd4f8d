//! The usage texts of `zfs`.

/// The commands with their usage texts, in the order of the general usage text. `None` is an empty
/// line there.
pub static COMMANDS: &[Option<(&str, &str)>] = &[
    Some(("version", "\tversion [-j]\n")),
    None,
    Some((
        "create",
        "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n\tcreate [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>\n",
    )),
    Some((
        "destroy",
        "\tdestroy [-fnpRrv] <filesystem|volume>\n\tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\tdestroy <filesystem|volume>#<bookmark>\n",
    )),
    None,
    Some(("snapshot", "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n")),
    Some(("rollback", "\trollback [-rRf] <snapshot>\n")),
    Some(("clone", "\tclone [-p] [-o property=value] ... <snapshot> <filesystem|volume>\n")),
    Some(("promote", "\tpromote <clone-filesystem>\n")),
    Some((
        "rename",
        "\trename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n\trename -p [-f] <filesystem|volume> <filesystem|volume>\n\trename -u [-f] <filesystem> <filesystem>\n\trename -r <snapshot> <snapshot>\n",
    )),
    Some(("bookmark", "\tbookmark <snapshot|bookmark> <newbookmark>\n")),
    Some((
        "program",
        "\tprogram [-jn] [-t <instruction limit>] [-m <memory limit (b)>]\n\t    <pool> <program file> [lua args...]\n",
    )),
    None,
    Some((
        "list",
        "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...\n",
    )),
    None,
    Some(("set", "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...\n")),
    Some((
        "get",
        "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\t    [-t type[,...]] [-s source[,...]]\n\t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...\n",
    )),
    Some(("inherit", "\tinherit [-rS] <property> <filesystem|volume|snapshot> ...\n")),
    Some(("upgrade", "\tupgrade [-v]\n\tupgrade [-r] [-V version] <-a | filesystem ...>\n")),
    None,
    Some((
        "userspace",
        "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n",
    )),
    Some((
        "groupspace",
        "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n",
    )),
    Some((
        "projectspace",
        "\tprojectspace [-Hp] [-o field[,...]] [-s field] ... \n\t    [-S field] ... <filesystem|snapshot|path>\n",
    )),
    None,
    Some((
        "project",
        "\tproject [-d|-r] <directory|file ...>\n\tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\tproject -C [-k] [-r] <directory ...>\n\tproject [-p id] [-r] [-s] <directory ...>\n",
    )),
    None,
    Some(("mount", "\tmount [-j]\n\tmount [-flvO] [-o opts] <-a|-R filesystem|filesystem>\n")),
    Some(("unmount", "\tunmount [-fu] <-a | filesystem|mountpoint>\n")),
    Some(("share", "\tshare [-l] <-a [nfs|smb] | filesystem>\n")),
    Some(("unshare", "\tunshare <-a [nfs|smb] | filesystem|mountpoint>\n")),
    None,
    Some((
        "send",
        "\tsend [-DLPbcehnpsVvw] [-i|-I snapshot]\n\t     [-R [-X dataset[,dataset]...]]     <snapshot>\n\tsend [-DnVvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>\n\tsend [-DnPpVvLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>\n\tsend [-nVvPe] -t <receive_resume_token>\n\tsend [-PnVv] --saved filesystem\n",
    )),
    Some((
        "receive",
        "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\t    <filesystem|volume|snapshot>\n\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... \n\t    [-d | -e] <filesystem>\n\treceive -A <filesystem|volume>\n",
    )),
    None,
    Some((
        "allow",
        "\tallow <filesystem|volume>\n\tallow [-ldug] <\"everyone\"|user|group>[,...] <perm|@setname>[,...]\n\t    <filesystem|volume>\n\tallow [-ld] -e <perm|@setname>[,...] <filesystem|volume>\n\tallow -c <perm|@setname>[,...] <filesystem|volume>\n\tallow -s @setname <perm|@setname>[,...] <filesystem|volume>\n",
    )),
    None,
    Some((
        "unallow",
        "\tunallow [-rldug] <\"everyone\"|user|group>[,...]\n\t    [<perm|@setname>[,...]] <filesystem|volume>\n\tunallow [-rld] -e [<perm|@setname>[,...]] <filesystem|volume>\n\tunallow [-r] -c [<perm|@setname>[,...]] <filesystem|volume>\n\tunallow [-r] -s @setname [<perm|@setname>[,...]] <filesystem|volume>\n",
    )),
    None,
    Some(("hold", "\thold [-r] <tag> <snapshot> ...\n")),
    Some(("holds", "\tholds [-rHp] <snapshot> ...\n")),
    Some(("release", "\trelease [-r] <tag> <snapshot> ...\n")),
    Some(("diff", "\tdiff [-FHth] <snapshot> [snapshot|filesystem]\n")),
    Some(("load-key", "\tload-key [-rn] [-L <keylocation>] <-a | filesystem|volume>\n")),
    Some(("unload-key", "\tunload-key [-r] <-a | filesystem|volume>\n")),
    Some((
        "change-key",
        "\tchange-key [-l] [-o keyformat=<value>]\n\t    [-o keylocation=<value>] [-o pbkdf2iters=<value>]\n\t    <filesystem|volume>\n\tchange-key -i [-l] <filesystem|volume>\n",
    )),
    Some(("redact", "\tredact <snapshot> <bookmark> <redaction_snapshot> ...\n")),
    Some(("wait", "\twait [-t <activity>] <filesystem>\n")),
    Some(("zone", "\tzone <nsfile> <filesystem>\n")),
    Some(("unzone", "\tunzone <nsfile> <filesystem>\n")),
];
