//! `zfs send`.

use std::time::{Duration, Instant};

use api::files::Denied;
use api::streams::Part;
use api::{DatasetKind as K, Error, Reason, Refusal, SendRequest};
use ondisk::nvlist::{Nvlist, Value};

use super::open::{below, exists, open};
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Long, Opt};
use console::{numbers, words};

mod package;
#[cfg(test)]
mod tests;

/// What a stream of a file system or volume itself has in place of a snapshot.
const HEAD: &str = "@--head--";

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(1);

const fn long(name: &'static str, letter: char, arg: bool) -> Long {
    Long { name, val: Opt::Short(letter), arg }
}

const LONG: [Long; 18] = [
    long("replicate", 'R', false),
    long("skip-missing", 's', false),
    long("redact", 'd', true),
    long("props", 'p', false),
    long("parsable", 'P', false),
    long("dedup", 'D', false),
    long("proctitle", 'V', false),
    long("verbose", 'v', false),
    long("dryrun", 'n', false),
    long("large-block", 'L', false),
    long("embed", 'e', false),
    long("resume", 't', true),
    long("compressed", 'c', false),
    long("raw", 'w', false),
    long("backup", 'b', false),
    long("holds", 'h', false),
    long("saved", 'S', false),
    long("exclude", 'X', true),
];

/// The options of a send.
#[derive(Default)]
struct Options {
    from: Option<String>,
    token: Option<String>,
    parsable: bool,
    progress: bool,
    dry: bool,
    /// A whole tree (`-R`).
    replicate: bool,
    /// Also the snapshots between (`-I`).
    all: bool,
    /// Leave out datasets without the snapshot (`-s`).
    skip_missing: bool,
    /// With properties (`-p`).
    props: bool,
    /// With received properties only (`-b`).
    backup: bool,
    /// With holds (`-h`).
    holds: bool,
    /// The redaction bookmark whose blocks are left out (`--redact`).
    redact: Option<String>,
    /// What an interrupted receive has left (`--saved`).
    saved: bool,
    /// Progress is shown as the title of the process (`-V`).
    title: bool,
    /// Datasets that are left out with all below them (`-X`).
    excluded: Vec<String>,
    forms: SendRequest,
}

impl Options {
    /// Whether sizes are shown (`verbosity`).
    fn is_verbose(&self) -> bool {
        self.progress || self.parsable || self.title
    }

    /// Whether one snapshot is sent as a package.
    fn is_package(&self) -> bool {
        self.props || self.holds || self.backup
    }

    /// Whether a snapshot is left out (`zfs_do_send_exclude`).
    fn excludes(&self, name: &str) -> bool {
        let under = |excluded: &String| name.strip_prefix(excluded.as_str());
        self.excluded.iter().filter_map(under).any(|tail| tail.is_empty() || tail.starts_with(['/', '@']))
    }

    /// Shows text about the stream where the stream does not go.
    fn show(&self, cx: &mut Cx, text: &str) {
        let to = if self.dry { &mut cx.out } else { &mut cx.err };
        to.put(text);
    }
}

/// Runs `zfs send` (`zfs_do_send`).
///
/// ```text
/// zfs send [-DLPVbcehnpsvw] [-R [-X dataset[,dataset]...]] [-[i|I] snapshot] <snapshot>
/// zfs send [-DLPVcenvw] [-i snapshot|bookmark] <filesystem|volume|snapshot>
/// zfs send [-DLPVcenpv] [-i bookmark|snapshot] --redact <bookmark> <snapshot>
/// zfs send [-nvVPe] -t <token>
/// zfs send [-PnVv] --saved <filesystem|volume>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut options = Options::default();
    let mut g = Getopt::new(args, "i:I:RsDpVvnPLeht:cwbd:SX:", &LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('i' | 'I'), _) if options.from.is_some() => return Err(Stop::usage("")),
            Found::Is(Opt::Short(letter @ ('i' | 'I')), from) => {
                options.from = Some(from);
                options.all |= letter == 'I';
            }
            Found::Is(Opt::Short('R'), _) => options.replicate = true,
            Found::Is(Opt::Short('s'), _) => options.skip_missing = true,
            Found::Is(Opt::Short('p'), _) => options.props = true,
            Found::Is(Opt::Short('b'), _) => options.backup = true,
            Found::Is(Opt::Short('h'), _) => options.holds = true,
            Found::Is(Opt::Short('X'), list) => exclude(&mut options, &list)?,
            Found::Is(Opt::Short('P'), _) => options.parsable = true,
            Found::Is(Opt::Short('v'), _) => options.progress = true,
            Found::Is(Opt::Short('n'), _) => options.dry = true,
            Found::Is(Opt::Short('L'), _) => options.forms.large_blocks = true,
            Found::Is(Opt::Short('e'), _) => options.forms.embedded = true,
            Found::Is(Opt::Short('c'), _) => options.forms.compressed = true,
            Found::Is(Opt::Short('w'), _) => options.forms.raw = true,
            Found::Is(Opt::Short('d'), bookmark) => options.redact = Some(bookmark),
            Found::Is(Opt::Short('t'), token) => options.token = Some(token),
            Found::Is(Opt::Short('D'), _) => cx.err.put(
                "WARNING: deduplicated send is no longer supported.  A regular,\n\
                 non-deduplicated stream will be generated.\n\n",
            ),
            Found::Is(Opt::Short('S'), _) => options.saved = true,
            Found::Is(Opt::Short('V'), _) => options.title = true,
            Found::Is(_, _) => unreachable!("it is not in the lists"),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
            Found::Missing(c) => return Err(Stop::missing(c)),
        }
    }
    chosen(cx, options, &g.operands())
}

/// Sends what the options and operands name.
fn chosen(cx: &mut Cx, mut options: Options, operands: &[String]) -> Outcome {
    if !options.excluded.is_empty() && !options.replicate {
        cx.err.put("Cannot specify dataset exclusion (-X) on a non-recursive send.\n");
        return Ok(1);
    }
    let more =
        options.from.is_some() || options.replicate || options.is_package() || options.redact.is_some();
    match (operands, options.token.take()) {
        (_, Some(_)) if more || options.saved => Err(Stop::usage("invalid flags combined with -t\n")),
        ([], Some(token)) => resume(cx, options, &token),
        ([], None) => Err(Stop::usage("missing snapshot argument\n")),
        ([_], None) if options.saved && (more || options.forms != SendRequest::default()) => {
            Err(Stop::usage("incompatible flags combined with saved send flag\n"))
        }
        ([name], None) if options.saved && name.contains('@') => {
            let text = "saved send must specify the dataset with partially-received state\n";
            Err(Stop::usage(text))
        }
        ([name], None) if options.saved => saved(cx, options, name),
        ([_], None) if options.forms.raw && options.redact.is_some() => {
            cx.err.put("Error: raw sends may not be redacted.\n");
            Ok(1)
        }
        ([name], None) => {
            check_output(cx, &options)?;
            if options.skip_missing && !options.replicate {
                let text = "skip-missing flag can only be used in conjunction with replicate\n";
                return Err(Stop::usage(text));
            }
            match options.replicate || options.all {
                true => package::run(cx, options, name),
                false => one(cx, options, name),
            }
        }
        _ => Err(Stop::usage("too many arguments\n")),
    }
}

/// Adds to the datasets that are left out.
fn exclude(options: &mut Options, list: &str) -> Result<(), Stop> {
    for name in list.split(',') {
        if names::dataset_name_fault(name, true, false).is_some() || !name.contains('/') {
            return Err(Stop::usage(format!("-X {name}: not a valid non-root dataset name.\n")));
        }
        options.excluded.push(name.to_owned());
    }
    Ok(())
}

/// Refuses a terminal as the place for a stream.
fn check_output(cx: &mut Cx, options: &Options) -> Result<(), Stop> {
    if options.dry || !cx.out.is_terminal() {
        return Ok(());
    }
    cx.err.put("Error: Stream can not be written to a terminal.\nYou must redirect standard output.\n");
    Err(Stop::Fail(1))
}

/// Sends one snapshot (`zfs_send_one`).
fn one(cx: &mut Cx, mut options: Options, name: &str) -> Outcome {
    let mut from = options.from.take();
    if let Some(word) = from.as_mut().filter(|word| !word.contains(['@', '#'])) {
        cx.err.put(
            "Warning: incremental source didn't specify type, assuming snapshot. \
             Use '@' or '#' prefix to avoid ambiguity.\n",
        );
        word.insert(0, '@');
    }
    if let Some(word) = from.as_mut().filter(|word| word.starts_with(['@', '#'])) {
        word.insert_str(0, name.split('@').next().unwrap_or(name));
    }
    open(cx, name, &[K::Filesystem, K::Volume, K::Snapshot], &[])?;
    if let Some(from) = from.as_deref().filter(|from| from.contains('@')) {
        open(cx, from, &[K::Snapshot], &[])?;
    }
    let redact = match options.redact.take() {
        Some(bookmark) => Some(redacted(cx, name, &bookmark)?),
        None => None,
    };
    let request = SendRequest { dataset: name.to_owned(), from, redact, ..options.forms.clone() };
    if !options.is_package() {
        return perform(cx, &options, &request);
    }
    package::begin_one(cx, &options, name)?;
    let code = perform(cx, &options, &request)?;
    if !options.dry {
        package::finish(cx, name)?;
    }
    Ok(code)
}

/// The name of a redaction bookmark of a snapshot, after the `#`.
///
/// # Errors
/// * [`Stop::Fail`]: there is none of this name. That is reported.
fn redacted(cx: &mut Cx, name: &str, bookmark: &str) -> Result<String, Stop> {
    let failed = |cx: &mut Cx, why: &str| {
        writeln!(cx.err, "warning: cannot send '{name}': {why}");
        Err(Stop::Fail(1))
    };
    let bookmark = bookmark.split_once('#').map_or(bookmark, |(_, short)| short);
    let Some((head, _)) = name.split_once('@') else {
        return failed(cx, "cannot do a redacted send to a filesystem");
    };
    let full = format!("{head}#{bookmark}");
    if full.len() >= names::MAX_DATASET_NAME {
        return failed(cx, "invalid bookmark name");
    }
    let found = open(cx, &full, &[K::Bookmark], &["redact_snaps"])?;
    match guids(&found) {
        Some(_) => Ok(bookmark.to_owned()),
        None => failed(cx, "not a redaction bookmark"),
    }
}

/// The guids of a redaction bookmark's snapshots, in order; `None` for other bookmarks.
fn guids(bookmark: &api::Dataset) -> Option<Vec<u64>> {
    let text = bookmark.prop("redact_snaps")?.value(true);
    let mut guids: Vec<u64> = match text {
        "none" => Vec::new(),
        text => text.split(',').map(str::parse).collect::<Result<_, _>>().ok()?,
    };
    guids.sort_unstable();
    Some(guids)
}

/// Sends what an interrupted receive into a dataset has left (`zfs_send_saved`).
fn saved(cx: &mut Cx, options: Options, name: &str) -> Outcome {
    check_output(cx, &options)?;
    let found = open(cx, name, &super::open::HEADS, &["receive_resume_token"])?;
    let token = found.prop("receive_resume_token").map(|p| p.value(true)).filter(|token| *token != "-");
    let list = match token.map(stream::token::decode) {
        Some(Ok(list)) => Ok(list),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("'{name}' has no partially received state")),
    };
    let mut list = match list {
        Ok(list) => list,
        Err(why) => {
            writeln!(cx.err, "saved send failed: {why}");
            return Ok(1);
        }
    };
    // From the beginning, and from here.
    let whole = ["object", "offset", "bytes"].map(|name| (name, Value::Uint64(0)));
    let here = ("toname", Value::String(name.as_bytes().to_vec()));
    for (name, value) in whole.into_iter().chain([here]) {
        list.remove(name);
        list.set(name, value);
    }
    list.remove("redact_snaps");
    resumed(cx, options, &list)
}

/// Sends the rest of an interrupted stream (`zfs_send_resume`).
///
/// A failure exits with 255, because libzfs's -1 is the exit code of this form of the command.
fn resume(cx: &mut Cx, options: Options, token: &str) -> Outcome {
    check_output(cx, &options)?;
    match stream::token::decode(token) {
        Ok(list) => match resumed(cx, options, &list) {
            Ok(1) | Err(Stop::Fail(1)) => Err(Stop::Fail(255)),
            outcome => outcome,
        },
        Err(error) => {
            writeln!(cx.err, "cannot resume send: {error}");
            Err(Stop::Fail(255))
        }
    }
}

/// Sends what a token describes (`zfs_send_resume_impl`).
fn resumed(cx: &mut Cx, mut options: Options, list: &Nvlist) -> Outcome {
    let failed = |cx: &mut Cx, why: &dyn std::fmt::Display| {
        writeln!(cx.err, "cannot resume send: {why}");
        Err(Stop::Fail(1))
    };
    if options.is_verbose() {
        let to = if options.dry { &mut cx.out } else { &mut cx.err };
        write!(to, "resume token contents:\n{}", list.tabbed());
    }
    let number = |name| list.u64(name);
    let fields = (list.str("toname"), number("object"), number("offset"), number("bytes"), number("toguid"));
    let (Some(to), Some(object), Some(offset), Some(bytes), Some(guid)) = fields else {
        return failed(cx, &"resume token is corrupt");
    };
    // Without a snapshot, a file system or volume itself was sent.
    let kinds: &[K] = if to.ends_with(HEAD) { &super::open::HEADS } else { &[K::Snapshot] };
    let name = if options.saved { Some(to.to_owned()) } else { with_guid(cx, to, guid, kinds, None)? };
    let Some(name) = name else {
        return match exists(cx, to, &[K::Snapshot])? {
            true => failed(cx, &format!("'{to}' is no longer the same snapshot used in the initial send")),
            false => failed(cx, &format!("'{to}' used in the initial send no longer exists")),
        };
    };
    let from = match number("fromguid").filter(|guid| *guid != 0) {
        None => None,
        Some(guid) => {
            match with_guid(cx, to, guid, &[K::Snapshot, K::Bookmark], list.u64s("book_redact_snaps"))? {
                None => return failed(cx, &format!("incremental source {guid:#x} no longer exists")),
                from => from,
            }
        }
    };
    let redact = match list.u64s("redact_snaps") {
        None => None,
        Some(snaps) => match redacted_for(cx, to, snaps)? {
            None => return failed(cx, &"no appropriate redaction bookmark exists"),
            found => found,
        },
    };
    let forms = std::mem::take(&mut options.forms);
    let request = SendRequest {
        dataset: name,
        from,
        large_blocks: forms.large_blocks || list.has("largeblockok"),
        embedded: forms.embedded || list.has("embedok"),
        compressed: forms.compressed || list.has("compressok"),
        raw: forms.raw || list.has("rawok"),
        resume: Some((object, offset, bytes)),
        redact,
        saved: options.saved,
    };
    perform(cx, &options, &request)
}

/// The redaction bookmark of a snapshot's dataset for these snapshots, by its name after the `#`
/// (`find_redact_book`).
fn redacted_for(cx: &mut Cx, snapshot: &str, snaps: &[u64]) -> Result<Option<String>, Stop> {
    let head = super::open::head_of(snapshot).to_owned();
    let all = below(cx, &head, Some(1), &[K::Bookmark], &["redact_snaps"])?;
    let found = all.iter().find(|mark| is_for(mark, snaps));
    Ok(found.and_then(|mark| Some(mark.name.split_once('#')?.1.to_owned())))
}

/// Whether a bookmark is a redaction bookmark for these snapshots.
fn is_for(bookmark: &api::Dataset, snaps: &[u64]) -> bool {
    let mut snaps = snaps.to_vec();
    snaps.sort_unstable();
    guids(bookmark).is_some_and(|guids| guids == snaps)
}

/// The name of a pool's snapshot or bookmark with this guid (`guid_to_name`). `near` is its former
/// name. With `snaps`, only of a redaction bookmark for these snapshots.
fn with_guid(
    cx: &mut Cx,
    near: &str,
    guid: u64,
    kinds: &[K],
    snaps: Option<&[u64]>,
) -> Result<Option<String>, Stop> {
    let pool = &near[..near.find(['/', '@', '#']).unwrap_or(near.len())];
    if !exists(cx, pool, &[K::Filesystem])? {
        return Ok(None);
    }
    let mut found: Vec<String> = Vec::new();
    for dataset in below(cx, pool, None, kinds, &["guid", "redact_snaps"])? {
        let fits = snaps.is_none_or(|snaps| is_for(&dataset, snaps));
        if fits && dataset.number("guid") == Some(guid) {
            found.push(dataset.name);
        }
    }
    // After a receive in the same pool, two have the guid.
    let same = |name: &String| super::open::head_of(name) == super::open::head_of(near);
    Ok(found.iter().find(|name| same(name)).or(found.first()).cloned())
}

/// Shows the size of a stream if that is wanted, and sends it unless this is a dry run.
fn perform(cx: &mut Cx, options: &Options, request: &SendRequest) -> Outcome {
    let size = match options.is_verbose() {
        true => estimate(cx, options, request)?,
        false => 0,
    };
    if options.dry { Ok(0) } else { send(cx, options, request, size) }
}

/// How large the stream will be. That is shown if it is wanted (`estimate_size`).
fn estimate(cx: &mut Cx, options: &Options, request: &SendRequest) -> Result<u64, Stop> {
    let size = cx.service()?.send_size(request).map_err(|e| failed(cx, request, &e))?;
    if !options.progress && !options.parsable {
        return Ok(size);
    }
    let name = &request.dataset;
    let what = match (&request.from, options.parsable) {
        (Some(from), true) => format!("incremental\t{from}\t{name}\t{size}\nsize\t{size}\n"),
        (None, true) => format!("full\t{name}\t{size}\nsize\t{size}\n"),
        (from, false) => {
            let begin = match from {
                Some(from) => format!("send from {from} to {name}"),
                None => format!("full send of {name}"),
            };
            let part = match size {
                0 => String::new(),
                size => format!(" estimated size is {}", numbers::bytes(size)),
            };
            format!("{begin}{part}\ntotal estimated size is {}\n", numbers::num(size))
        }
    };
    options.show(cx, &what);
    Ok(size)
}

/// Has the daemon write the stream of about this size to standard output, or copies it there.
fn send(cx: &mut Cx, options: &Options, request: &SendRequest, size: u64) -> Outcome {
    if !cx.out.flush() {
        return Err(broken(cx, &request.dataset));
    }
    let mut stream = (cx.stream)(request, cx.out.file()).map_err(|denied| refused(cx, request, denied))?;
    if options.progress && !options.parsable {
        writeln!(cx.err, "TIME        SENT   SNAPSHOT {}", request.dataset);
    }
    let (mut sent, mut shown) = (0, Instant::now());
    title(cx, options, &request.dataset, (sent, size));
    loop {
        let part = match stream.next() {
            Ok(Some(part)) => part,
            Ok(None) => break,
            Err(denied) => {
                cx.out.flush();
                return Err(refused(cx, request, denied));
            }
        };
        match part {
            Part::Bytes(bytes) => {
                sent += bytes.len() as u64;
                cx.out.put_raw(bytes);
                if cx.out.has_failed() {
                    return Err(broken(cx, &request.dataset));
                }
            }
            Part::Written(bytes) => sent = bytes,
        }
        if shown.elapsed() < PROGRESS {
            continue;
        }
        shown = Instant::now();
        title(cx, options, &request.dataset, (sent, size));
        if options.progress {
            progress(cx, options, &request.dataset, sent);
        }
    }
    if cx.out.flush() { Ok(0) } else { Err(broken(cx, &request.dataset)) }
}

/// Shows as the title of the process how much of a stream was sent, if that is wanted.
fn title(cx: &mut Cx, options: &Options, name: &str, (sent, size): (u64, u64)) {
    if !options.title {
        return;
    }
    let percent = sent.checked_div(size / 100).map_or(100, |percent| percent.min(100));
    let (sent, size) = (numbers::num(sent), numbers::num(size));
    if let Err(error) = (cx.title)(&format!("zfs: sending {name} ({percent}%: {sent}/{size})")) {
        writeln!(cx.err, "warning: cannot show a title of the process: {error}");
        cx.title = |_| Ok(());
    }
}

/// Shows how much was sent (`send_progress_thread`).
fn progress(cx: &mut Cx, options: &Options, name: &str, sent: u64) {
    let time = cx.clock.time(cx.clock.now());
    if options.parsable {
        writeln!(cx.err, "{time}\t{sent}\t{name}");
    } else {
        writeln!(cx.err, "{time}   {:>5}   {name}", numbers::bytes(sent));
    }
}

/// Reports that standard output takes no more.
fn broken(cx: &mut Cx, name: &str) -> Stop {
    let why = words::errno(rustix::io::Errno::PIPE.raw_os_error());
    writeln!(cx.err, "warning: cannot send '{name}': {why}");
    Stop::Fail(1)
}

/// Reports why the daemon sends no stream, or only a part.
fn refused(cx: &mut Cx, request: &SendRequest, denied: Denied) -> Stop {
    match denied {
        Denied::Api(error) => failed(cx, request, &error),
        Denied::NoKey { .. } => {
            let reason = Reason::KeyNotLoaded;
            failed(cx, request, &Error::new(&request.dataset, reason))
        }
        denied => {
            let why = api::chain(&denied);
            writeln!(cx.err, "warning: cannot send '{}': {why}", request.dataset);
            Stop::Fail(1)
        }
    }
}

/// Reports an error with libzfs's text (`dump_ioctl`; for a head and from a bookmark
/// `zfs_send_one_cb_impl`).
fn failed(cx: &mut Cx, request: &SendRequest, error: &Error) -> Stop {
    let SendRequest { dataset, from, .. } = request;
    let why = match &error.reason {
        Reason::Refused { why: Refusal::NotBefore } => "not an earlier snapshot from the same fs".to_owned(),
        Reason::NoSuchDataset if from.as_deref() == Some(&error.about) => {
            format!("incremental source ({}) does not exist", error.about)
        }
        Reason::KeyNotLoaded => {
            let one = !dataset.contains('@') || from.as_deref().is_some_and(|from| from.contains('#'));
            format!("{} key must be loaded", if one { "dataset" } else { "source" })
        }
        Reason::Busy => "target is busy; if a filesystem, it must not be mounted".to_owned(),
        reason => words::reason(reason, &cx.clock),
    };
    writeln!(cx.err, "warning: cannot send '{dataset}': {why}");
    Stop::Fail(1)
}
