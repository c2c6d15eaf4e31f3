//! `-listOpenFiles`

use hearth_client::OpenFilesKind;

use crate::commands::tool::{Tool, pop_option, pop_value};

pub async fn list(tool: &Tool, mut words: Vec<String>) -> anyhow::Result<u8> {
    let kind = match pop_option("-blockingDecommission", &mut words) {
        true => OpenFilesKind::BlockingDecommission,
        false => OpenFilesKind::All,
    };
    let path = pop_value("-path", &mut words)?;
    let path = path.as_deref().map(str::trim).filter(|path| !path.is_empty()).unwrap_or("/");
    let fs = tool.fs()?;
    let mut after = 0;
    let mut is_first = true;
    loop {
        let page = match fs.open_files(kind, path, after).await {
            Ok(page) => page,
            Err(error) => {
                eprintln!("List open files failed.");
                return Err(error.into());
            }
        };
        if is_first {
            println!("{:<20}\t{:<20}\tOpen File Path", "Client Host", "Client Name");
            is_first = false;
        }
        for file in &page.entries {
            println!("{:<20}\t{:<20}\t{:>20}", file.client_machine, file.client_name, file.path);
        }
        match page.entries.last() {
            Some(last) if page.has_more && last.inode > after => after = last.inode,
            _ => return Ok(0),
        }
    }
}
