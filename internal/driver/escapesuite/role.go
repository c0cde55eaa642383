package escapesuite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Role is a configuration of the attacks: the daemon's user, the image of sandboxes, and how
// programs start. The suite runs once for each role.
type Role struct {
	As    As   // the daemon's user
	Image bool // sandboxes have an image instead of the host's programs
	Warm  bool // the first program of a sandbox runs in a prestarted interpreter
}

// As is the user of the daemon.
type As string

// All users.
const (
	Root       As = "root"        // root, with a range of ids for each sandbox
	RootOneID  As = "root-one-id" // root of a user namespace that maps uid 0 alone
	User       As = "user"        // an ordinary user without control groups
	UserCgroup As = "user-cgroup" // an ordinary user with a delegated control group
)

// Roles returns all roles: each As with and without an image, cold and warm.
func Roles() []Role {
	var all []Role
	for _, as := range []As{Root, RootOneID, User, UserCgroup} {
		all = append(all, Role{As: as}, Role{As: as, Warm: true}, Role{As: as, Image: true}, Role{As: as, Image: true, Warm: true})
	}
	return all
}

// String returns the role's name: "user", "user-cgroup-image-warm".
func (r Role) String() string {
	name := string(r.As)
	if r.Image {
		name += "-image"
	}
	if r.Warm {
		name += "-warm"
	}
	return name
}

// ParseRoles parses comma-separated names of roles. "all" means Roles.
func ParseRoles(names string) ([]Role, error) {
	if names == "all" {
		return Roles(), nil
	}
	var roles []Role
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(Roles(), func(r Role) bool { return r.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no role %s (allowed: all, or %s, %s, %s, %s, each also with -image, -warm or -image-warm)",
				sandbar.Quote(name, 40), Root, RootOneID, User, UserCgroup)
		}
		roles = append(roles, Roles()[i])
	}
	return roles, nil
}
