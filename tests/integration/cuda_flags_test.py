#!/usr/bin/env python3
"""scripts/cuda-flags.sh: which CUDA backend the quickstart builds on which machine."""
import os
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "cuda-flags.sh")


class CudaFlagsTest(unittest.TestCase):
    def flags(self, capabilities=None, device=False, **environment):
        """cmake's flags on a machine whose nvidia-smi prints `capabilities` (None: there is none), and what was said."""
        with tempfile.TemporaryDirectory() as folder:
            nvidia_smi = os.path.join(folder, "nvidia-smi")
            with open(nvidia_smi, "w") as f:
                f.write("#!/bin/sh\n" + ("exit 9\n" if capabilities is None else f"printf '{capabilities}'\n"))
            os.chmod(nvidia_smi, 0o755)
            path = os.path.join(folder, "nvidia0")
            if device:
                open(path, "w").close()
            env = {"PATH": folder + ":/usr/bin:/bin", "HEARTH_NVIDIA_DEVICE": path, **environment}
            done = subprocess.run(["bash", SCRIPT], env=env, capture_output=True, text=True)
        self.said = done.stderr
        self.code = done.returncode
        return done.stdout.split()

    def test_no_gpu_no_cuda(self):
        self.assertEqual(self.flags(), ["-DHEARTH_CUDA=OFF"])
        self.assertIn("no NVIDIA GPU (HEARTH_CUDA=ON", self.said)
        # A choice of architectures is no wish for them.
        self.assertEqual(self.flags(HEARTH_CUDA_ARCHS="90a-real"), ["-DHEARTH_CUDA=ON", "-DHEARTH_CUDA_ARCHS=90a-real"])

    def test_wish_without_a_gpu_takes_the_stated_default(self):
        self.assertEqual(self.flags(HEARTH_CUDA="ON"), ["-DHEARTH_CUDA=ON", "-DHEARTH_CUDA_ARCHS=120a-real"])
        self.assertIn("120a-real", self.said)
        self.assertEqual(self.flags(HEARTH_CUDA="ON", HEARTH_CUDA_ARCHS="80-real;90a-real"),
                         ["-DHEARTH_CUDA=ON", "-DHEARTH_CUDA_ARCHS=80-real;90a-real"])

    def test_gpus_decide(self):
        for capabilities, archs in ((r"9.0\n", "90a-real"), (r"8.9\n8.9\n", "89-real"), (r"12.0\n", "120a-real"),
                                    (r"8.6\n9.0\n9.0\n", "86-real;90a-real"), (r"7.5\n8.0\n", "80-real")):
            self.assertEqual(self.flags(capabilities), ["-DHEARTH_CUDA=AUTO", f"-DHEARTH_CUDA_ARCHS={archs}"])
        self.assertEqual(self.flags(r"9.0\n", HEARTH_CUDA="OFF"), ["-DHEARTH_CUDA=OFF"])
        self.assertEqual(self.flags(r"9.0\n", HEARTH_CUDA_ARCHS="80-virtual"), ["-DHEARTH_CUDA=ON", "-DHEARTH_CUDA_ARCHS=80-virtual"])

    def test_gpu_that_is_too_old_or_does_not_say(self):
        self.assertEqual(self.flags(r"7.5\n"), ["-DHEARTH_CUDA=OFF"])
        self.assertIn("7.5 is below 8.0", self.said)
        self.assertEqual(self.flags("[N/A]", device=True), ["-DHEARTH_CUDA=AUTO", "-DHEARTH_CUDA_ARCHS=80-virtual"])
        self.assertEqual(self.flags("No devices were found"), ["-DHEARTH_CUDA=OFF"])

    def test_nonsense_is_refused(self):
        self.assertEqual(self.flags(HEARTH_CUDA="yes"), [])
        self.assertEqual(self.code, 2)


if __name__ == "__main__":
    unittest.main()
