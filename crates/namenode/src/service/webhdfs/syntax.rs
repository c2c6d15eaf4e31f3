//! Syntax checks of parameters. Every known parameter must be valid, whether the operation uses it or not: Java's
//! NameNode parses all parameters that it knows for the method before it looks at the operation.
//!
//! Source: the parameters of `get`, `put`, `post` and `delete` of `NamenodeWebHdfsMethods`, in their order. Texts that
//! are accepted unchecked are in none of these lists.

use hearth_web::webhdfs::Exception;

use super::Operation;
use super::changes::CLEAR;

impl Operation {
    /// Errors: `IllegalArgumentException`.
    pub(super) fn check_values(&self) -> Result<(), Exception> {
        match self.method.as_str() {
            "GET" | "HEAD" => self.check_values_of_get(),
            "PUT" => self.check_values_of_put(),
            "POST" => self.check_values_of_post(),
            "DELETE" => self.parameters.flag("recursive", false).map(drop),
            _ => Ok(()),
        }
    }

    fn check_values_of_get(&self) -> Result<(), Exception> {
        let given = &self.parameters;
        given.long("offset", 0)?;
        given.long("length", 0)?;
        given.integer("buffersize", 1)?;
        self.encoding()?;
        self.action()?;
        given.integer("snapshotdiffindex", -1)?;
        given.flag("noredirect", false)?;
        given.flag("allusers", false)?;
        Ok(())
    }

    fn check_values_of_put(&self) -> Result<(), Exception> {
        let given = &self.parameters;
        self.given_destination()?;
        given.mode("permission")?;
        given.mode("unmaskedpermission")?;
        given.flag("overwrite", false)?;
        given.integer("buffersize", 1)?;
        given.short("replication", 1)?;
        given.long("blocksize", 1)?;
        given.long("modificationtime", -1)?;
        given.long("accesstime", -1)?;
        self.rename_options()?;
        given.flag("createparent", true)?;
        self.given_acl()?;
        self.xattr_flags()?;
        given.create_flags()?;
        given.flag("noredirect", false)?;
        given.long("namespacequota", CLEAR)?;
        given.long("storagespacequota", CLEAR)?;
        Ok(())
    }

    fn check_values_of_post(&self) -> Result<(), Exception> {
        let given = &self.parameters;
        given.integer("buffersize", 1)?;
        given.long("newlength", 0)?;
        given.flag("noredirect", false)?;
        Ok(())
    }
}
