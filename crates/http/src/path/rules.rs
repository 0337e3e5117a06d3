//! Path normalisation rules of a listener (Istio's `pathNormalization`).

/// How a path is normalised: MeshConfig.pathNormalization of Istio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PathLevel {
    /// NONE: the path is used as it came. A path with a dot segment in any disguise is refused, which Istio does not do.
    None,
    /// BASE, which DEFAULT means: RFC 3986 §6.2.2, and `\` becomes `/`.
    #[default]
    Base,
    /// MERGE_SLASHES: BASE, and adjacent slashes become one.
    MergeSlashes,
    /// DECODE_AND_MERGE_SLASHES: `%2F` and `%5C` become `/` before all else.
    DecodeAndMergeSlashes,
}

/// Treatment of parameters (`;name=value`) in path segments. Some applications ignore them when they choose a handler, so a
/// policy for `/admin` does not match `/admin;x`, and the application serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parameters {
    /// They belong to the path, as Istio has it. Those of dot segments go with the segment.
    #[default]
    Keep,
    /// They are removed. At `PathLevel::None` they are kept.
    Drop,
    /// A path with parameters is refused.
    Refuse,
}

/// The rules for paths of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathRules {
    /// The normalisation.
    pub level: PathLevel,
    /// The treatment of parameters.
    pub parameters: Parameters,
}
