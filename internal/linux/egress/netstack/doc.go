// Package netstack is the process with the TCP/IP stacks of the sandboxes' networks. Each stack is
// at the other end of a TUN device, the sandbox's only interface besides its loopback. The process
// has no files and no rights (package confine); the daemon passes it devices and rules (packages
// egress and wire).
//
// A program's data arrives here as IP packets. The stack terminates each TCP connection and UDP
// flow, and an ordinary socket of the process forwards the data. So nothing of the host's network
// is configured, no privilege is needed, and there is no way in: nothing outside knows an address
// of the sandbox. Programs send DNS queries to the gateway (wire.Gateway, port 53), which forwards
// them to the operator's servers.
//
// Invariants of a Host for all its sandboxes, and of a Link for its own:
//
//   - The policy checks the exact address that a socket connects to, immediately before it connects
//     (Policy). A name whose address changes between two lookups gains nothing.
//   - Denied unless the operator allows it: all addresses of this machine, private and special
//     ranges, cloud metadata, and SMTP's port 25. IPv4 within a translator's prefix (NAT64) is
//     checked as IPv4. Always denied: multicast, broadcast, other sandboxes.
//   - The owner of a sandbox can deny more (Link.restrict), never less, and cuts what it denies.
//   - A denial is an answer: a reset for TCP, "port unreachable" for UDP, REFUSED for a DNS query.
//     A program never hangs because of the policy.
//   - Connections and flows, the rate of new ones, buffered bytes and DNS queries are bounded per
//     sandbox; descriptors are also bounded for the process, and transferred bytes if the operator
//     sets a limit.
//   - A Link without traffic costs one goroutine and two descriptors: its stack is created with the
//     first packet. After Close nothing of it remains.
//   - A process that dies leaves the ledgers of its Links. The next process continues with the same
//     byte counts and resets the connections that were open.
//
// The process does not inspect or record what is sent, and does not prevent one sandbox from using
// the host's whole bandwidth.
package netstack
