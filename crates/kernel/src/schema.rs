//! How values that are written as text are described to programs. Only with the feature `schema`;
//! what serde derives, utoipa derives a description of.

/// Describes a type as a text that matches a pattern.
macro_rules! text {
    ($name:ident, $pattern:literal) => {
        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some($pattern))
                    .into()
            }
        }
    };
}

pub(crate) use text;
