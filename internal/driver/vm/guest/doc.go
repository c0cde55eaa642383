// Package guest prepares what a virtual machine of the vm driver boots: a kernel, an initial file
// system with the agent, and the root's lower layer.
//
//   - Setup fetches a kernel package of the distribution, or takes the operator's kernel. It
//     extracts the uncompressed kernel, which qemu starts directly (PVH), and the modules that the
//     machine needs.
//   - BuildRoot writes a directory tree, an image or the host's programs, as an EROFS file.
//   - BuildInitramfs writes the initial file system, whose /init is the agent's program; see
//     package boot.
//
// All results are files in a cache directory. Their names or descriptions have a digest of the
// content or of the input, and they appear atomically. A killed process leaves only files that the
// next call removes.
package guest
