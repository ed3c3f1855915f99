package file

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestDistantFS: the kinds whose locks may be known to one machine alone are refused; local ones are not.
func TestDistantFS(t *testing.T) {
	t.Parallel()
	for _, kind := range []int64{
		unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.SMB_SUPER_MAGIC,
		unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, int64(int32(-0x00acb2be)), // CIFS where the kernel's type is 32 bits wide
		unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC, 0x01161970, 0x0bd00bd0, 0x786f4256,
	} {
		if distantFS(kind) == "" {
			t.Errorf("%#x is taken for local", uint32(kind))
		}
		if name := unnumberedFS(kind); name != "" {
			t.Errorf("%#x is taken for %s", uint32(kind), name)
		}
	}
	for _, kind := range []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1} {
		if name := distantFS(kind); name != "" {
			t.Errorf("%#x is taken for %s", kind, name)
		}
		if name := unnumberedFS(kind); name != "" {
			t.Errorf("%#x is taken for %s", kind, name)
		}
	}
	for _, kind := range []int64{unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC} {
		if unnumberedFS(kind) == "" {
			t.Errorf("%#x is taken for one with inodes", kind)
		}
	}
}
