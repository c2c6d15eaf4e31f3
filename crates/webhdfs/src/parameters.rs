//! What a request asks, as Hadoop reads it.
//!
//! Source: `ParameterParser`, and the parameters in `org.apache.hadoop.hdfs.web.resources`.

use std::str::FromStr;

use hearth_client::CreateOptions;
use hearth_types::FsPermission;
use hearth_web::axum::http::Method;
use hearth_web::webhdfs::{Exception, Request};

/// Of files whose creator says nothing of it. Source: `PermissionParam`.
const FILE_PERMISSION: FsPermission = FsPermission(0o644);

/// Source: `CreateFlag`.
const FLAGS: [&str; 10] = [
    "CREATE",
    "OVERWRITE",
    "APPEND",
    "SYNC_BLOCK",
    "LAZY_PERSIST",
    "NEW_BLOCK",
    "NO_LOCAL_WRITE",
    "SHOULD_REPLICATE",
    "IGNORE_CLIENT_LOCALITY",
    "NO_LOCAL_RACK",
];

#[derive(Debug)]
pub(crate) enum Asked {
    Open(Part),
    Checksum,
    Create(Creation),
    Append,
}

/// Of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub offset: u64,
    /// `None`: up to its end.
    pub length: Option<u64>,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Creation {
    pub options: CreateOptions,
    /// Each block is to be on the DataNodes' disks when it has ended.
    pub syncs: bool,
    /// A file that is there is replaced, and none is made where there is none.
    pub must_exist: bool,
}

impl Asked {
    /// Errors: what Hadoop's DataNode would refuse, too, and what this client cannot do.
    pub(crate) fn parse(request: &Request) -> Result<Self, Exception> {
        let operation = request.operation();
        let asked = match (&request.method, operation.as_str()) {
            (&Method::GET, "OPEN") => {
                let (offset, length) = (request.number("offset")?, request.number("length")?);
                Self::Open(Part { offset: offset.unwrap_or(0), length })
            }
            (&Method::GET, "GETFILECHECKSUM") => return Ok(Self::Checksum),
            (&Method::PUT, "CREATE") => Self::Create(Creation::parse(request)?),
            (&Method::POST, "APPEND") => Self::Append,
            _ => return Err(Exception::invalid_operation(request)),
        };
        // The client has buffers of its own.
        positive::<i32>(request, "buffersize")?;
        Ok(asked)
    }
}

impl Creation {
    /// LAZY_PERSIST and where replicas are to lie are wishes; they are not passed on.
    fn parse(request: &Request) -> Result<Self, Exception> {
        for name in ["ecpolicy", "storagepolicy"] {
            if request.text(name).is_some() {
                return Err(Exception::unsupported(format!("the parameter {name} is not supported for CREATE")));
            }
        }
        let flags = flags(request)?;
        let has = |flag: &str| flags.iter().any(|given| given == flag);
        let masked = permission(request, "permission")?.unwrap_or(FILE_PERMISSION);
        let unmasked = permission(request, "unmaskedpermission")?.unwrap_or(masked);
        let options = CreateOptions {
            overwrite: request.flag("overwrite")?.unwrap_or(false) || has("OVERWRITE"),
            parents: request.flag("createparent")?.unwrap_or(true),
            replication: positive::<i16>(request, "replication")?.map(i16::unsigned_abs),
            block_size: positive::<i64>(request, "blocksize")?.map(i64::unsigned_abs),
            permission: Some(masked),
            unmasked: Some(unmasked),
        };
        Ok(Self { options, syncs: has("SYNC_BLOCK"), must_exist: !flags.is_empty() && !has("CREATE") })
    }
}

/// A number from 1 on.
fn positive<T: FromStr + PartialOrd + From<u8>>(request: &Request, name: &str) -> Result<Option<T>, Exception> {
    match request.number::<T>(name)? {
        Some(number) if number < T::from(1) => {
            Err(request.invalid(name, request.text(name).unwrap_or_default(), "it is less than 1"))
        }
        number => Ok(number),
    }
}

/// In octal digits.
fn permission(request: &Request, name: &str) -> Result<Option<FsPermission>, Exception> {
    let parse = |text: &str| match u16::from_str_radix(text, 8) {
        Ok(bits) if bits <= FsPermission::MASK => Ok(FsPermission(bits)),
        _ => Err(request.invalid(name, text, "it is not an octal number up to 1777")),
    };
    request.text(name).map(parse).transpose()
}

fn flags(request: &Request) -> Result<Vec<String>, Exception> {
    let name = "createflag";
    let Some(text) = request.text(name) else { return Ok(Vec::new()) };
    let known = |flag: &str| {
        let flag = flag.trim().to_ascii_uppercase();
        if FLAGS.contains(&flag.as_str()) {
            return Ok(flag);
        }
        Err(request.invalid(name, text, "there is no such flag"))
    };
    text.split(',').map(known).collect()
}

#[cfg(test)]
mod tests {
    use hearth_web::axum::body::Body;
    use hearth_web::axum::http;

    use super::*;

    fn parse(method: &Method, query: &str) -> Result<Asked, Exception> {
        let url = format!("/webhdfs/v1/a?{query}");
        let request = http::Request::builder().method(method.clone()).uri(url).body(Body::empty()).unwrap();
        Asked::parse(&Request::parse(request, [127, 0, 0, 1].into()).unwrap())
    }

    fn creation(query: &str) -> Creation {
        match parse(&Method::PUT, &format!("op=CREATE&{query}")).unwrap() {
            Asked::Create(creation) => creation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_of_files() {
        for (query, offset, length) in [
            ("op=OPEN", 0, None),
            ("op=open&offset=7&length=null", 7, None),
            ("op=OPEN&Length=0&buffersize=4096", 0, Some(0)),
        ] {
            match parse(&Method::GET, query).unwrap() {
                Asked::Open(part) => assert_eq!(part, Part { offset, length }, "{query}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(parse(&Method::GET, "op=GETFILECHECKSUM"), Ok(Asked::Checksum)));
        assert!(matches!(parse(&Method::POST, "op=APPEND&buffersize=1"), Ok(Asked::Append)));
    }

    #[test]
    fn what_is_not_said_of_a_new_file_has_hadoops_defaults() {
        let plain = CreateOptions {
            overwrite: false,
            parents: true,
            replication: None,
            block_size: None,
            permission: Some(FsPermission(0o644)),
            unmasked: Some(FsPermission(0o644)),
        };
        assert_eq!(creation(""), Creation { options: plain, syncs: false, must_exist: false });
        let all =
            "overwrite=TRUE&createparent=false&replication=2&blocksize=1048576&permission=1640&unmaskedpermission=666";
        let options = CreateOptions {
            overwrite: true,
            parents: false,
            replication: Some(2),
            block_size: Some(1 << 20),
            permission: Some(FsPermission(0o1640)),
            unmasked: Some(FsPermission(0o666)),
        };
        assert_eq!(creation(all).options, options);
        let flagged = creation("createflag=create,%20Overwrite,SYNC_BLOCK");
        assert!(flagged.options.overwrite && flagged.syncs && !flagged.must_exist);
        assert!(creation("createflag=OVERWRITE").must_exist);
    }

    #[test]
    fn what_cannot_be_is_refused() {
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
