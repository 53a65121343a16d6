"""AMD and Intel devices, through stand-ins for amdsmi and for the process that asks torch.xpu."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.hardware import amd, intel, nvml, probe
from zerocfg.hardware.devices import Devices, imported
from zerocfg.hardware.measure import MeasureError

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
XGMI, PCIE = 2, 1


class SmiError(Exception):
    pass


def amdsmi(names: list[str], link: int = XGMI, gfx: str = "gfx942", **more: Any) -> SimpleNamespace:
    """A stand-in for amdsmi 7.0: handles are numbers."""
    functions: dict[str, Any] = {
        "amdsmi_init": lambda: None,
        "amdsmi_shut_down": lambda: None,
        "amdsmi_get_processor_handles": lambda: list(range(len(names))),
        "amdsmi_get_gpu_asic_info": lambda h: {"market_name": names[h], "target_graphics_version": gfx},
        "AmdSmiMemoryType": SimpleNamespace(VRAM=0),
        "amdsmi_get_gpu_memory_total": lambda h, kind: 192 * GIB - (1 << 20),
        "amdsmi_get_pcie_info": lambda h: {"pcie_static": {"max_pcie_width": 16, "pcie_interface_version": 5}},
        "AmdSmiLinkType": SimpleNamespace(AMDSMI_LINK_TYPE_XGMI=XGMI, AMDSMI_LINK_TYPE_PCIE=PCIE),
        "amdsmi_topo_get_link_type": lambda a, b: {"hops": 1, "type": link},
        "amdsmi_get_gpu_driver_info": lambda h: {"driver_name": "amdgpu", "driver_version": "6.12.12"},
        "amdsmi_get_gpu_device_bdf": lambda h: f"0000:{0x0C + h:02X}:00.0",
    }
    return SimpleNamespace(**(functions | more))


class TestAmd:
    def test_known_devices_joined_by_infinity_fabric(self) -> None:
        found = amd.read_devices(lambda: amdsmi(["AMD Instinct MI300X OAM"] * 2))
        device = found.accelerators[0]
        assert (device.vendor, device.usable_gib, device.bf16_tflops) == ("amd", 191.4, 1307)
        assert (device.architecture, device.bf16, device.fp8) == ("gfx942", True, True)
        assert (device.pcie_generation, device.pcie_width, device.host_gb_s) == (5, 16, 128)
        assert found.link and (found.link.kind, found.link.gb_s) == ("infinity-fabric", 896)
        assert found.topology == ["X XGMI", "XGMI X"]
        assert found.pci == ["0000:0c:00.0", "0000:0d:00.0"]
        assert found.driver == "6.12.12"
        assert "AMD SMI" in device.origin and "MI300X data sheet" in device.origin

    def test_devices_on_pcie(self) -> None:
        found = amd.read_devices(lambda: amdsmi(["AMD Instinct MI210"] * 2, link=PCIE, gfx="gfx90a"))
        assert found.link and found.link.kind == "pcie"
        assert found.accelerators[0].fp8 is False

    def test_an_unknown_device(self) -> None:
        found = amd.read_devices(lambda: amdsmi(["Radeon PRO W7900"], gfx="gfx1100"))
        device = found.accelerators[0]
        assert (device.name, device.usable_gib, device.bf16, device.bf16_tflops) == (
            "Radeon PRO W7900",
            192.0,
            False,
            None,
        )
        assert found.link is None and found.topology == []

    def test_what_a_guest_may_not_ask(self) -> None:
        def refuse(*_: Any) -> Any:
            raise SmiError("AMDSMI_STATUS_NOT_SUPPORTED")

        names = ("amdsmi_get_pcie_info", "amdsmi_topo_get_link_type", "amdsmi_get_gpu_driver_info")
        found = amd.read_devices(lambda: amdsmi(["MI300X"] * 2, **dict.fromkeys(names, refuse)))
        assert len(found.accelerators) == 2 and found.link is None and found.topology == [] and found.driver is None

    def test_values_that_are_not_available(self) -> None:
        static = {"pcie_static": {"max_pcie_width": "N/A", "pcie_interface_version": "N/A"}}
        found = amd.read_devices(lambda: amdsmi(["MI300X"], amdsmi_get_pcie_info=lambda h: static))
        assert found.accelerators[0].pcie_width is None

    def test_a_device_that_cannot_be_read(self) -> None:
        def broken(handle: int) -> Any:
            if handle == 0:
                raise SmiError("lost")
            return {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"}

        found = amd.read_devices(lambda: amdsmi(["", "AMD Instinct MI300X"], amdsmi_get_gpu_asic_info=broken))
        assert len(found.accelerators) == 1
        assert found.notes == ["AMD device 0 could not be read and is not counted: lost"]

    @pytest.mark.parametrize("function", ["amdsmi_init", "amdsmi_get_processor_handles"])
    def test_a_broken_driver(self, function: str) -> None:
        def fail() -> Any:
            raise SmiError("driver not loaded")

        (note,) = amd.read_devices(lambda: amdsmi([], **{function: fail})).notes
        assert "driver not loaded" in note

    def test_no_library_says_what_to_install(self) -> None:
        def fail() -> Any:
            raise ImportError("amdsmi cannot be imported: libamd_smi.so")

        (note,) = amd.read_devices(fail).notes
        assert "libamd_smi.so" in note and "8xMI300X" in note

    def test_what_the_import_prints_stays_out_of_the_profile(self, capsys: pytest.CaptureFixture[str]) -> None:
        def loud() -> Any:
            print("Unable to find libamd_smi.so")
            raise KeyError("libamd_smi.so")

        with pytest.raises(ImportError, match=r"amdsmi cannot be imported: 'libamd_smi\.so'"):
            imported(loud, "amdsmi")
        assert capsys.readouterr().out == ""


class TestIntel:
    def test_found_by_its_render_node(self, tmp_path: Path) -> None:
        assert not intel.is_here(tmp_path)
        for number, vendor in ((128, "0x10de"), (129, "0x8086")):
            folder = tmp_path / f"sys/class/drm/renderD{number}/device"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text(vendor + "\n")
            assert intel.is_here(tmp_path) == (vendor == "0x8086")

    def test_devices(self) -> None:
        device = {
            "name": "Intel(R) Data Center GPU Max 1550",
            "total": 64 * GIB,
            "driver": "1.6.33578",
            "bf16": True,
        }
        found = intel.read_devices(probe.quietly, lambda _: [device] * 2)
        assert [one.usable_gib for one in found.accelerators] == [64, 64]
        assert found.accelerators[0].bf16_tflops == 839
        assert (found.driver, found.link) == ("1.6.33578", None)

    def test_torch_without_xpu(self) -> None:
        (note,) = intel.read_devices(probe.quietly, lambda _: []).notes
        assert "torch.xpu does not see it" in note

    def test_a_torch_built_for_others_is_not_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(intel, "ask", lambda *_: pytest.fail("a process was started"))
        torch = ModuleSpec("torch", None, origin="torch/__init__.py")
        monkeypatch.setattr("importlib.util.find_spec", lambda _: torch)
        for built, words in ((False, "without XPU support"), (True, "")):
            text = "xpu: Optional[str] = " + ("'20250302'" if built else "None") + "\n"
            monkeypatch.setattr(intel, "read_text", lambda _, text=text: text)
            assert intel.built_for_xpu() == built
            if not built:
                assert words in intel.read_devices(probe.quietly).notes[0]

    def test_torch_that_breaks(self) -> None:
        def fail(_: Any) -> Any:
            raise MeasureError("it ended with code -11")

        (note,) = intel.read_devices(probe.quietly, fail).notes
        assert "code -11" in note


class TestWhoIsAsked:
    def test_each_vendor_only_where_the_system_shows_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def reader(vendor: str) -> Any:
            def read(*_: Any) -> Devices:
                asked.append(vendor)
                return Devices(notes=[vendor])

            return read

        monkeypatch.setattr(nvml, "read_devices", reader("nvidia"))
        monkeypatch.setattr(amd, "read_devices", reader("amd"))
        monkeypatch.setattr(intel, "read_devices", reader("intel"))
        probe.find_devices(tmp_path)
        assert asked == ["nvidia"]
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/kfd").touch()
        node = tmp_path / "sys/class/drm/renderD128/device"
        node.mkdir(parents=True)
        (node / "vendor").write_text("0x8086")
        assert probe.find_devices(tmp_path).notes == ["nvidia", "amd", "intel"]
