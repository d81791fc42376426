//! Steps that a wrapper passes on to the store it wraps.

/// Implements the named steps of a wrapper whose method `step` runs a closure on the wrapped transaction.
macro_rules! pass_on {
    (@one $wrapper:ty, $step:ident { $(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $out:ty;)* } { $($own:item)* }) => {
        #[deny(clippy::missing_trait_methods)]
        impl $step for $wrapper {
            $(fn $name(&mut self $(, $arg: $type)*) -> leasehold_core::store::StoreResult<$out> {
                self.step(|inner| inner.$name($($arg),*))
            })*
            $($own)*
        }
    };
    ($step:ident for $wrapper:ty { $($steps:tt)* }) => {
        pass_on!(@one $wrapper, $step { $($steps)* } {});
    };
    ($step:ident for $wrapper:ty { $($steps:tt)* } and { $($own:item)* }) => {
        pass_on!(@one $wrapper, $step { $($steps)* } { $($own)* });
    };
}
pub(crate) use pass_on;
