//! A variable that cannot be used.

/// A variable that cannot be used. The process ends with [`SettingError::EXIT`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?}: {fix}")]
pub struct SettingError {
    /// The variable.
    pub variable: String,
    /// What it holds.
    pub value: String,
    /// What it should hold.
    pub fix: String,
}

impl SettingError {
    /// sysexits(3) EX_USAGE.
    pub const EXIT: u8 = 64;
}
