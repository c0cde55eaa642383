// Package qemu runs machines with qemu-system-x86_64, version 8.2 or later, on KVM or by emulation
// (TCG).
//
// A machine has a q35 board with memory, processors, one virtio disk, two virtio ports and a
// generation id (vmgenid), and no network card or other device. Its memory is a file. Save writes
// the rest of its state (x-ignore-shared), and Restore maps the file copy-on-write.
//
// qemu is controlled by QMP over a socket that it inherits. It is not trusted: the size of a
// message and the duration of every command are bounded.
package qemu
