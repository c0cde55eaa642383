// Package netstack is the process that carries sandboxes' packets: a TCP/IP stack
// at the other end of a TUN device that is the sandbox's only interface beside its
// loopback. The process has no files and no rights (package confine); the daemon
// hands it devices and rules (packages egress and wire).
//
// What a program sends arrives here as IP packets. The stack ends each TCP
// connection and each UDP flow, and a socket of the process, an ordinary one,
// carries the bytes on. So nothing of the host's network is configured, no
// right is needed for it, and there is nothing to come in by: the sandbox has
// no address that anything outside knows. Names are asked of the gateway
// (wire.Gateway, port 53), which asks the operator's servers.
//
// What a Host promises of all its sandboxes together, and a Link of its own:
//
//   - The policy is asked about the very address that is connected to, in the
//     moment before the process's socket connects (Policy). A name that changes
//     its address between two looks gains nothing.
//   - Never reached, unless the operator says otherwise: this machine by any of
//     its addresses, private and special ranges, cloud metadata, mail's port 25;
//     IPv4 within the prefix of a translator (NAT64) is judged as IPv4.
//     Never at all: multicast, broadcast, other sandboxes.
//   - A refusal is an answer: a reset for TCP, "port unreachable" for UDP,
//     REFUSED for a name server's question. Nothing hangs because of the policy.
//   - Connections and flows, the rate at which they are made, the memory that
//     waits in them and the questions to name servers are bounded for each
//     sandbox, descriptors also for the process, and bytes if the operator says so.
//   - A Link that nothing was sent over costs a goroutine and two descriptors: its
//     stack is made with the first packet. After Close nothing of it remains.
//   - What a process leaves when it dies is a Link's ledger: the next one charges
//     the same bytes and resets the connections that were open.
//
// It does not look into what is sent, keeps no record of it, and does not keep
// one sandbox from using up the host's bandwidth.
package netstack
