//! Parsing of the operations and parameters of requests, with Hadoop's rules.
//!
//! Source: `ParameterParser`, and the parameters in `org.apache.hadoop.hdfs.web.resources`.

use hearth_client::CreateOptions;
use hearth_types::FsPermission;
use hearth_web::webhdfs::{Exception, Parameters, Request};

/// Permission of a new file if the request has none. Source: `PermissionParam`.
const FILE_PERMISSION: FsPermission = FsPermission(0o644);

#[derive(Debug)]
pub(crate) enum RequestedOperation {
    Open(OpenRange),
    Checksum,
    Create(CreateRequest),
    Append,
}

/// Range of a file to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenRange {
    pub offset: u64,
    /// `None`: to the end of the file.
    pub length: Option<u64>,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CreateRequest {
    pub options: CreateOptions,
    /// Sync each block to the DataNodes' disks when it ends.
    pub syncs: bool,
    /// Only replace an existing file; do not create a missing one.
    pub must_exist: bool,
}

impl RequestedOperation {
    /// Parses a request.
    ///
    /// Errors: requests that Hadoop's DataNode also refuses, and those that this client does not support.
    pub(crate) fn parse(request: &Request) -> Result<Self, Exception> {
        let parameters = &request.parameters;
        let operation = parameters.text("op").unwrap_or("null");
        let asked = match (request.method.as_str(), operation.to_ascii_uppercase().as_str()) {
            ("GET", "OPEN") => {
                let offset = parameters.long("offset", 0)?.map_or(0, i64::unsigned_abs);
                Self::Open(OpenRange { offset, length: parameters.long("length", 0)?.map(i64::unsigned_abs) })
            }
            ("GET", "GETFILECHECKSUM") => return Ok(Self::Checksum),
            ("PUT", "CREATE") => Self::Create(CreateRequest::parse(parameters)?),
            ("POST", "APPEND") => Self::Append,
            _ => return Err(Exception::illegal_argument(format!("Invalid operation {operation}"))),
        };
        // Validated, but not used: the client has buffers of its own.
        parameters.integer("buffersize", 1)?;
        Ok(asked)
    }
}

impl CreateRequest {
    /// Parses the parameters of CREATE. Like Java's DataNode, it ignores placement hints (`NO_LOCAL_WRITE` and
    /// similar), which are not passed on.
    fn parse(given: &Parameters) -> Result<Self, Exception> {
        let name = "ecpolicy";
        // This client can only create replicated files.
        if given.text(name).is_some_and(|policy| !policy.eq_ignore_ascii_case("replication")) {
            return Err(Exception::unsupported(format!("the parameter {name} is not supported for CREATE")));
        }
        let flags = given.create_flags()?;
        let mode = |name| given.mode(name).map(|mode| mode.map(|bits| FsPermission(bits as u16)));
        let masked = mode("permission")?.unwrap_or(FILE_PERMISSION);
        let options = CreateOptions {
            overwrite: given.flag("overwrite", false)? || flags.contains(&"OVERWRITE"),
            parents: given.flag("createparent", true)?,
            replication: given.short("replication", 1)?,
            block_size: given.long("blocksize", 1)?.map(i64::unsigned_abs),
            permission: Some(masked),
            unmasked: Some(mode("unmaskedpermission")?.unwrap_or(masked)),
            lazy_persist: flags.contains(&"LAZY_PERSIST"),
            storage_policy: given.text("storagepolicy").map(str::to_owned),
        };
        let must_exist = !flags.is_empty() && !flags.contains(&"CREATE");
        Ok(Self { options, syncs: flags.contains(&"SYNC_BLOCK"), must_exist })
    }
}

#[cfg(test)]
mod tests {
    use hearth_web::axum::body::Body;
    use hearth_web::axum::http::{self, Method};

    use super::*;

    fn parse(method: &Method, query: &str) -> Result<RequestedOperation, Exception> {
        let url = format!("/webhdfs/v1/a?{query}");
        let request = http::Request::builder().method(method.clone()).uri(url).body(Body::empty()).unwrap();
        RequestedOperation::parse(&Request::parse(request, [127, 0, 0, 1].into()).unwrap())
    }

    fn creation(query: &str) -> CreateRequest {
        match parse(&Method::PUT, &format!("op=CREATE&{query}")).unwrap() {
            RequestedOperation::Create(creation) => creation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn open_ranges_are_parsed() {
        for (query, offset, length) in [
            ("op=OPEN", 0, None),
            ("op=open&offset=7&length=null", 7, None),
            ("op=OPEN&Length=0&buffersize=4096", 0, Some(0)),
        ] {
            match parse(&Method::GET, query).unwrap() {
                RequestedOperation::Open(part) => assert_eq!(part, OpenRange { offset, length }, "{query}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(parse(&Method::GET, "op=GETFILECHECKSUM"), Ok(RequestedOperation::Checksum)));
        assert!(matches!(parse(&Method::POST, "op=APPEND&buffersize=1"), Ok(RequestedOperation::Append)));
    }

    #[test]
    fn create_has_hadoops_defaults() {
        let plain = CreateOptions {
            overwrite: false,
            parents: true,
            replication: None,
            block_size: None,
            permission: Some(FsPermission(0o644)),
            unmasked: Some(FsPermission(0o644)),
            lazy_persist: false,
            storage_policy: None,
        };
        assert_eq!(creation("ecpolicy=replication").options, plain);
        assert_eq!(creation(""), CreateRequest { options: plain, syncs: false, must_exist: false });
        let all = "overwrite=TRUE&createparent=false&replication=2&blocksize=1048576&permission=1640\
            &unmaskedpermission=666&createflag=CREATE,lazy_persist&storagepolicy=COLD";
        let options = CreateOptions {
            overwrite: true,
            parents: false,
            replication: Some(2),
            block_size: Some(1 << 20),
            permission: Some(FsPermission(0o1640)),
            unmasked: Some(FsPermission(0o666)),
            lazy_persist: true,
            storage_policy: Some("COLD".to_owned()),
        };
        assert_eq!(creation(all).options, options);
        let flagged = creation("createflag=create,%20Overwrite,SYNC_BLOCK");
        assert!(flagged.options.overwrite && flagged.syncs && !flagged.must_exist);
        assert!(creation("createflag=OVERWRITE").must_exist);
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for query in [
            "permission=9",
            "permission=2000",
            "permission=-1",
            "unmaskedpermission=rw",
            "replication=0",
            "replication=40000",
            "blocksize=0",
            "blocksize=64m",
            "buffersize=-1",
            "overwrite=yes",
            "createflag=CREATE,NONE",
        ] {
            let refused = parse(&Method::PUT, &format!("op=CREATE&{query}")).unwrap_err();
            assert_eq!(refused.simple_name(), "IllegalArgumentException", "{query}");
        }
        for query in ["op=OPEN&offset=-1", "op=OPEN&length=x", "op=CREATE", "op=APPEND", ""] {
            assert!(parse(&Method::GET, query).is_err(), "{query}");
        }
        let refused = parse(&Method::PUT, "op=CREATE&ecpolicy=RS-6-3-1024k").unwrap_err();
        assert_eq!(refused.simple_name(), "UnsupportedOperationException");
    }
}
