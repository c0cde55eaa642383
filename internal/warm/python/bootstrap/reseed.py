# Renews state that two copies of one template must not share.
import os


def reseed_logging(logging):
    import time
    logging._startTime = time.time_ns() if type(logging._startTime) is int else time.time()


def reseed_process(process):
    process.current_process()._config['authkey'] = process.AuthenticationString(os.urandom(32))


# RESEED has a function per module, called when the module leaves HiddenModules. The module random
# is not here: it reseeds itself after a fork.
RESEED = {
    'logging': reseed_logging,
    'multiprocessing.process': reseed_process,
    'numpy.random': lambda random: random.seed(),
    'platform': lambda platform: setattr(platform, '_uname_cache', None),
    'threading': lambda threading: threading.main_thread()._set_native_id(),
}
