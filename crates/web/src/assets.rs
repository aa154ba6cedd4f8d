//! The files of the page. All are in the program: the page needs nothing from elsewhere.

/// A file.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its path in URLs.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content.
    pub text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the folder `page`.
macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset { path: concat!("/", $path), kind: $kind, text: include_str!(concat!("../page/", $path)) }
    };
}

/// All files but the page itself. `uPlot` is Leon Sorokin's, under the MIT licence beside it.
pub const ASSETS: [Asset; 13] = [
    asset!("app.css", CSS),
    asset!("uPlot.min.css", CSS),
    asset!("uPlot.iife.min.js", SCRIPT),
    asset!("app.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("daemon.js", SCRIPT),
    asset!("datasets.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("heat.js", SCRIPT),
    asset!("lists.js", SCRIPT),
    asset!("pools.js", SCRIPT),
    asset!("rates.js", SCRIPT),
    asset!("units.js", SCRIPT),
];

/// The page.
pub const PAGE: Asset = Asset { path: "/", kind: HTML, text: include_str!("../page/index.html") };

/// The file of a path.
pub fn find(path: &str) -> Option<Asset> {
    ASSETS.iter().chain([&PAGE]).find(|asset| asset.path == path).copied()
}

/// What browsers may do with the page: load its own files, and nothing else.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The values of an attribute, or of what a module imports.
    fn after<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
        text.split(begin).skip(1).map(|rest| rest.split('"').next().unwrap_or_default())
    }

    /// Goal: the page loads each of its files, and nothing from elsewhere.
    #[test]
    fn closed() {
        let mut used = BTreeSet::new();
        used.extend(after(PAGE.text, "href=\"/"));
        used.extend(after(PAGE.text, "src=\"/"));
        for asset in ASSETS {
            used.extend(after(asset.text, "from \"./"));
        }
        let files: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.path.trim_start_matches('/')).collect();
        assert_eq!(used, files);
        for asset in ASSETS.iter().chain([&PAGE]) {
            let mut foreign = vec!["src=\"//", "@import", "url(", "XMLHttpRequest", "WebSocket", "import("];
            if asset.path.contains("uPlot") {
                // Its licence names a site.
                foreign.push("fetch(");
            } else {
                foreign.extend(["http://", "https://"]);
            }
            let found = foreign.iter().find(|word| asset.text.contains(**word));
            assert_eq!(found, None, "{}", asset.path);
        }
    }

    /// Goal: no script makes markup, code or inline styles of text, which the policy forbids too.
    #[test]
    fn text_stays_text() {
        for asset in ASSETS.iter().chain([&PAGE]).filter(|asset| !asset.path.contains("uPlot")) {
            let unsafe_words = [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "style=",
                "onclick",
            ];
            let found = unsafe_words.iter().find(|word| asset.text.contains(**word));
            assert_eq!(found, None, "{}", asset.path);
        }
    }

    /// Goal: each element that a script looks for by its id is on the page.
    #[test]
    fn ids() {
        let ids: BTreeSet<&str> = after(PAGE.text, " id=\"").collect();
        for asset in ASSETS {
            for id in after(asset.text, " at(\"").chain(after(asset.text, "(at(\"")) {
                assert!(ids.contains(id), "{} looks for {id}", asset.path);
            }
        }
    }
}
