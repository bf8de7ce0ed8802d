/*!
Decides whether a file system is local to this host, by its type. A lock on a shared file system may not exclude other
hosts, and only the type tells: a file system that is not known to be local counts as remote.

The layers of an overlay cannot be seen.
*/

/// Local file systems, by the magic number of `statfs(2)`.
const LOCAL: &[u32] = &[
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    TMPFS,
    RAMFS,
    0x794c_7630, // overlayfs
    0x6175_6673, // aufs
    0xf15f,      // eCryptfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0xf2f5_2010, // F2FS
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x5234_5362, // Reiser4
    0x3434,      // NILFS
    0x2405_1905, // UBIFS
    0x72b6,      // JFFS2
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS3
    0x5346_544e, // NTFS, the older driver
    0x4244,      // HFS
    0x482b,      // HFS+
    0x1501_3346, // UDF
    0x137f,      // Minix, all versions
    0x138f,
    0x2468,
    0x2478,
    0x4d5a,
    0x5346_4846, // Windows Subsystem for Linux
];

/// The names of known remote file systems, for messages.
const KNOWN: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x2003_0528, "OrangeFS"),
    (0x1983_0326, "BeeGFS"),
    (0xaad7_aaea, "PanFS"),
    (0xbeef_dead, "StorNext"),
    (0x786f_4256, "shared folders of VirtualBox"),
    (0xbacb_acbc, "shared folders of VMware"),
    (0x7c7c_6673, "shared folders of Parallels"),
];

const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;

/// The reason why lock files are refused on a file system of this type: it is remote, or not known to be local.
pub(super) fn objection(magic: u32) -> Option<String> {
    if LOCAL.contains(&magic) {
        return None;
    }
    let what = match KNOWN.iter().find(|(known, _)| *known == magic) {
        Some((_, name)) => format!("a remote file system ({name})"),
        None => format!("a file system that is not known to be local (type {magic:#x})"),
    };
    Some(format!(
        "it is on {what}, where a lock may not reach every host: use a server backend, or say ?remote=trust in the URL"
    ))
}

/// Returns `true` if a reboot of this host empties a file system of this type.
pub(super) fn is_volatile(magic: u32) -> bool {
    magic == TMPFS || magic == RAMFS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_local_is_taken() {
        for (magic, said) in [
            (0xef53, None),
            (TMPFS, None),
            (RAMFS, None),
            (0x794c_7630, None),
            (0x6969, Some("(NFS)")),
            (0x6573_5546, Some("(FUSE)")),
            (0x1983_0326, Some("(BeeGFS)")),
            (0x1234_5678, Some("not known to be local (type 0x12345678)")),
            (0, Some("(type 0x0)")),
        ] {
            let objection = objection(magic);
            assert_eq!(objection.is_some(), said.is_some(), "{magic:#x}");
            if let (Some(objection), Some(said)) = (objection, said) {
                assert!(objection.contains(said) && objection.ends_with("?remote=trust in the URL"), "{objection}");
            }
        }
        assert!(KNOWN.iter().all(|(magic, _)| !LOCAL.contains(magic)));
    }

    #[test]
    fn what_is_kept_in_memory_is_gone_after_a_restart() {
        for (magic, volatile) in [(TMPFS, true), (RAMFS, true), (0xef53, false), (0x794c_7630, false)] {
            assert_eq!(is_volatile(magic), volatile, "{magic:#x}");
        }
    }
}
