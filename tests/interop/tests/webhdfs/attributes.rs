//! ACLs, extended attributes, storage policies, quotas.

use anyhow::Result;
use hearth_interop::Session;

use crate::transcript::Transcript;

const ACLS: &[&str] = &[
    "GET /attributes/f?op=GETACLSTATUS",
    "PUT /attributes/f?op=MODIFYACLENTRIES&aclspec=user:ann:rwx,group::r-x",
    "GET /attributes/f?op=GETACLSTATUS",
    "GET /attributes/f?op=GETFILESTATUS",
    "mallory GET /attributes/f?op=GETACLSTATUS",
    "PUT /attributes/f?op=MODIFYACLENTRIES&aclspec=user:carl:---,mask::r--",
    "GET /attributes/f?op=GETACLSTATUS",
    "PUT /attributes/f?op=REMOVEACLENTRIES&aclspec=user:ann:",
    "GET /attributes/f?op=GETACLSTATUS",
    "PUT /attributes/f?op=SETACL&aclspec=user::rw-,user:carl:r--,group::---,other::---",
    "GET /attributes/f?op=GETACLSTATUS",
    "PUT /attributes/f?op=REMOVEACL",
    "GET /attributes/f?op=GETACLSTATUS",
    "PUT /attributes/d?op=SETPERMISSION&permission=1751",
    "PUT /attributes/d?op=MODIFYACLENTRIES&aclspec=default:user:ann:r-x,user:carl:r-x",
    "GET /attributes/d?op=GETACLSTATUS",
    "PUT /attributes/d/sub?op=MKDIRS",
    "GET /attributes/d/sub?op=GETACLSTATUS",
    "GET /attributes?op=LISTSTATUS",
    "PUT /attributes/d?op=REMOVEDEFAULTACL",
    "GET /attributes/d?op=GETACLSTATUS",
    "! PUT /attributes/f?op=MODIFYACLENTRIES&aclspec=default:user:ann:r-x",
    "! PUT /attributes/f?op=SETACL&aclspec=user::rwx",
    "! PUT /attributes/f?op=MODIFYACLENTRIES&aclspec=user:ann:rwz",
    "! PUT /attributes/f?op=MODIFYACLENTRIES&aclspec=nonsense",
    "? PUT /attributes/f?op=MODIFYACLENTRIES",
    "!~ PUT /attributes/none?op=MODIFYACLENTRIES&aclspec=user:ann:rwx",
    "! GET /attributes/none?op=GETACLSTATUS",
    "! mallory PUT /attributes/f?op=MODIFYACLENTRIES&aclspec=user:mallory:rwx",
    "! mallory PUT /attributes/f?op=REMOVEACL",
];

/// Values: `plain`, `quoted`, the bytes `ab\xff`, `abc`, none.
const XATTRS: &[&str] = &[
    "PUT /attributes/f?op=SETPERMISSION&permission=644",
    "GET /attributes/f?op=LISTXATTRS",
    "GET /attributes/f?op=GETXATTRS&encoding=text",
    "PUT /attributes/f?op=SETXATTR&xattr.name=user.plain&xattr.value=plain&flag=CREATE",
    "PUT /attributes/f?op=SETXATTR&xattr.name=user.quoted&xattr.value=%22quoted%22&flag=CREATE",
    "PUT /attributes/f?op=SETXATTR&xattr.name=user.hex&xattr.value=0x6162ff&flag=CREATE",
    "PUT /attributes/f?op=SETXATTR&xattr.name=user.base64&xattr.value=0sYWJj&flag=CREATE",
    "PUT /attributes/f?op=SETXATTR&xattr.name=trusted.none&flag=CREATE",
    "GET /attributes/f?op=LISTXATTRS",
    "GET /attributes/f?op=GETXATTRS&encoding=text&xattr.name=user.plain",
    "GET /attributes/f?op=GETXATTRS&encoding=TEXT&xattr.name=user.quoted",
    "GET /attributes/f?op=GETXATTRS&encoding=hex",
    "GET /attributes/f?op=GETXATTRS&encoding=base64",
    "GET /attributes/f?op=GETXATTRS&encoding=hex&xattr.name=user.hex&xattr.name=user.base64",
    "mallory GET /attributes/f?op=LISTXATTRS",
    "mallory GET /attributes/f?op=GETXATTRS&encoding=hex",
    "PUT /attributes/f?op=SETXATTR&xattr.name=user.plain&xattr.value=changed&flag=REPLACE",
    "PUT /attributes/f?op=SETXATTR&xattr.name=user.plain&xattr.value=again&flag=CREATE,REPLACE",
    "GET /attributes/f?op=GETXATTRS&encoding=text&xattr.name=user.plain",
    "! PUT /attributes/f?op=SETXATTR&xattr.name=user.plain&xattr.value=x&flag=CREATE",
    "! PUT /attributes/f?op=SETXATTR&xattr.name=user.other&xattr.value=x&flag=REPLACE",
    "!~ PUT /attributes/f?op=SETXATTR&xattr.name=nonsense&xattr.value=x&flag=CREATE",
    "! PUT /attributes/f?op=SETXATTR&xattr.name=user.other&xattr.value=x&flag=ANYHOW",
    "! PUT /attributes/none?op=SETXATTR&xattr.name=user.other&xattr.value=x&flag=CREATE",
    "! GET /attributes/f?op=GETXATTRS&encoding=text&xattr.name=user.other",
    "! GET /attributes/f?op=GETXATTRS&encoding=rot13",
    "! GET /attributes/none?op=GETXATTRS&encoding=text",
    "! GET /attributes/none?op=LISTXATTRS",
    "! mallory GET /attributes/f?op=GETXATTRS&encoding=hex&xattr.name=trusted.none",
    "! mallory PUT /attributes/f?op=SETXATTR&xattr.name=user.hers&xattr.value=x&flag=CREATE",
    "! mallory PUT /attributes/f?op=REMOVEXATTR&xattr.name=user.plain",
    "PUT /attributes/f?op=REMOVEXATTR&xattr.name=user.plain",
    "! PUT /attributes/f?op=REMOVEXATTR&xattr.name=user.plain",
    "GET /attributes/f?op=LISTXATTRS",
];

const POLICIES: &[&str] = &[
    "GET /?op=GETALLSTORAGEPOLICY",
    "GET /attributes/d?op=GETSTORAGEPOLICY",
    "PUT /attributes/d?op=SETSTORAGEPOLICY&storagepolicy=COLD",
    "GET /attributes/d?op=GETSTORAGEPOLICY",
    "GET /attributes/d?op=GETFILESTATUS",
    "PUT /attributes/f?op=SETSTORAGEPOLICY&storagepolicy=ALL_SSD",
    "GET /attributes/f?op=GETSTORAGEPOLICY",
    "POST /attributes/f?op=UNSETSTORAGEPOLICY",
    "POST /attributes/d?op=UNSETSTORAGEPOLICY",
    "GET /attributes/f?op=GETSTORAGEPOLICY",
    "GET /attributes/d?op=GETFILESTATUS",
    "! PUT /attributes/d?op=SETSTORAGEPOLICY&storagepolicy=LUKEWARM",
    "!~ PUT /attributes/d?op=SETSTORAGEPOLICY",
    "! PUT /attributes/none?op=SETSTORAGEPOLICY&storagepolicy=COLD",
    "! GET /attributes/none?op=GETSTORAGEPOLICY",
    "! POST /attributes/none?op=UNSETSTORAGEPOLICY",
    "!~ mallory PUT /attributes/d?op=SETSTORAGEPOLICY&storagepolicy=COLD",
];

const QUOTAS: &[&str] = &[
    "PUT /attributes/q?op=MKDIRS",
    "GET /attributes/q?op=GETQUOTAUSAGE",
    "PUT /attributes/q?op=SETQUOTA&namespacequota=3&storagespacequota=4194304",
    "GET /attributes/q?op=GETQUOTAUSAGE",
    "PUT /attributes/q?op=SETQUOTABYSTORAGETYPE&storagetype=SSD&storagespacequota=1048576",
    "GET /attributes/q?op=GETQUOTAUSAGE",
    "GET /attributes/q?op=GETCONTENTSUMMARY",
    "PUT /attributes/q/one?op=MKDIRS",
    "PUT /attributes/q/two?op=MKDIRS",
    "! PUT /attributes/q/three?op=MKDIRS",
    "! mallory PUT /attributes/q?op=SETQUOTA&namespacequota=30",
    "! mallory PUT /attributes/q?op=SETQUOTABYSTORAGETYPE&storagetype=SSD&storagespacequota=1",
    "! PUT /attributes/f?op=SETQUOTA&namespacequota=30",
    "! PUT /attributes/none?op=SETQUOTA&namespacequota=30",
    "! PUT /attributes/q?op=SETQUOTABYSTORAGETYPE&storagetype=FLOPPY&storagespacequota=1",
    "! PUT /attributes/q?op=SETQUOTA&namespacequota=x",
    "PUT /attributes/q?op=SETQUOTA&namespacequota=-1&storagespacequota=-1",
    "PUT /attributes/q?op=SETQUOTABYSTORAGETYPE&storagetype=SSD&storagespacequota=-1",
    "GET /attributes/q?op=GETQUOTAUSAGE",
];

pub fn attributes(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "attributes", |transcript| {
        transcript.ask("PUT /attributes/d?op=MKDIRS")?;
        transcript.create("/attributes/f", b"bytes")?;
        for lines in [ACLS, XATTRS, POLICIES, QUOTAS] {
            transcript.ask_all(lines)?;
        }
        Ok(())
    })
}
