"""List the fonts of the glyph set, and the Debian packages that contain them.

One font a design: bold, proportional and regional variants are left out. The first
fonts draw nearly all characters, the last ones some thousands.
"""

from dataclasses import dataclass

from benchmarks.data_sets.debian import DebianPackage


@dataclass(frozen=True)
class GlyphFont:
    """A font to draw characters with.

    Args:
        name: Name of the images that it draws.
        package: The package that brings it.
        file: Its path inside of the package.
        license: Short name of its license; the whole text is in the package.
        index: Its place in a collection of fonts (`.ttc`).
    """

    name: str
    package: DebianPackage
    file: str
    license: str
    index: int = 0


_FONTS = "usr/share/fonts/"
_TABLE: tuple[tuple[DebianPackage, str, dict[str, str]], ...] = (
    (
        DebianPackage(
            "fonts-noto-cjk",
            "1:20220127+repack1-1",
            "4a2515eb6db3978b897fef9709ed0d2b1f4c6c4df4d83d6c4ef65f71f1b1f502",
        ),
        "OFL-1.1",
        {
            "noto-sans": "opentype/noto/NotoSansCJK-Regular.ttc",
            "noto-serif": "opentype/noto/NotoSerifCJK-Regular.ttc",
        },
    ),
    (
        DebianPackage(
            "fonts-lxgw-wenkai",
            "1.250+repack-1",
            "6d1e4c4aac78ad32062aefa2c836ee4d6e58f9dcf8b3f4407c9eefe304615318",
        ),
        "OFL-1.1",
        {"wenkai": "truetype/lxgw-wenkai/LXGWWenKai-Regular.ttf"},
    ),
    (
        DebianPackage(
            "fonts-hanazono",
            "20170904-2.1",
            "a6943366b4f5a6cec34221f8b4eb22555a628f0ee6ef4e3d3401cabe9363aeae",
        ),
        "Hanazono or OFL-1.1",
        {"hanazono": "truetype/hanazono/HanaMinA.ttf"},
    ),
    (
        DebianPackage(
            "fonts-wqy-zenhei",
            "0.9.45-8",
            "cfed2c29164ff2f133e40ed2046610b172b8618d174840936ac4ec9b6fd668e7",
        ),
        "GPL-2 with font embedding exception",
        {"zenhei": "truetype/wqy/wqy-zenhei.ttc"},
    ),
    (
        DebianPackage(
            "fonts-wqy-microhei",
            "0.2.0-beta-3.1",
            "239163df984eea5c9da3b551aee374936222cdbd67f1a1be3cdcf3d76143ad66",
        ),
        "Apache-2.0 or GPL-3+ with font exception",
        {"microhei": "truetype/wqy/wqy-microhei.ttc"},
    ),
    (
        DebianPackage(
            "fonts-cns11643-kai",
            "103.1+20181001-1",
            "c8c92e76357c0980b50d80d83674a5109a11624df83b9994c9118ad3aec31ece",
        ),
        "OGDL-TW-1.0",
        {"tw-kai": "truetype/cns11643/TW-Kai-98_1.ttf"},
    ),
    (
        DebianPackage(
            "fonts-arphic-uming",
            "0.2.20080216.2-11",
            "2676b21b90df94f23418610291b71b43720c95cdccb420b97ab56edfd3ce4cf5",
        ),
        "Arphic",
        {"uming": "truetype/arphic/uming.ttc"},
    ),
    (
        DebianPackage(
            "fonts-arphic-ukai",
            "0.2.20080216.2-5",
            "b9db73184895b067f7911f9adbf3b137df99c2d4ec5425b4ad779a9834b7110b",
        ),
        "Arphic",
        {"ukai": "truetype/arphic/ukai.ttc"},
    ),
    (
        DebianPackage(
            "fonts-seto",
            "6.20-8",
            "1ce0b6124d635036d64462d7f0bece68d79608713a51d0664d4aa03da882fe2c",
        ),
        "OFL-1.1",
        {"seto": "truetype/seto/setofont.ttf"},
    ),
    (
        DebianPackage(
            "fonts-vlgothic",
            "20220612-1",
            "81b0a42456747e7ec2f801028b254c33f8c720a99e15140c23f0861329687448",
        ),
        "M+, Sazanami and BSD-3-Clause",
        {"vl-gothic": "truetype/vlgothic/VL-Gothic-Regular.ttf"},
    ),
    (
        DebianPackage(
            "fonts-horai-umefont",
            "670-5",
            "1b1ed2bef53ff395439ce3999b8c28dc8b9bff9d4d0de31cc440a1f331b4a9b9",
        ),
        "Ume",
        {
            "ume-gothic": "truetype/horai-umefont/ume-tgo4.ttf",
            "ume-mincho": "truetype/horai-umefont/ume-tmo3.ttf",
        },
    ),
    (
        DebianPackage(
            "fonts-migmix",
            "20200307-1",
            "5c23291d8c0306c20c3f7cc1edec4324edb8678537699c9a727011faa362626d",
        ),
        "IPA-1.0",
        {"migmix": "truetype/migmix/migmix-1p-regular.ttf"},
    ),
    (
        DebianPackage(
            "fonts-ipafont-gothic",
            "00303-23",
            "5f8e0270654fec6577fffa96015067352440065c0b49bbc8b076745a6b4bf3d3",
        ),
        "IPA-1.0",
        {"ipa-gothic": "opentype/ipafont-gothic/ipag.ttf"},
    ),
    (
        DebianPackage(
            "fonts-ipafont-mincho",
            "00303-23",
            "6a81c96987d37d48c4e09beb55c06396d1f385f46af86de7c1bd53a82a683c45",
        ),
        "IPA-1.0",
        {"ipa-mincho": "opentype/ipafont-mincho/ipam.ttf"},
    ),
    (
        DebianPackage(
            "fonts-kouzan-mouhitsu",
            "20170411-3",
            "924536ceff9359b99996e56cd24633df67d696a343ba46f9e3106e8cee228dbe",
        ),
        "public domain",
        {
            "kouzan": "truetype/kouzan-mouhitsu/kouzan-mouhitsu.ttf",
            "kouzan-gyosho": "truetype/kouzan-mouhitsu/kouzan-mouhitsu-gyosho.ttf",
            "kouzan-sousyo": "truetype/kouzan-mouhitsu/KouzanBrushFontSousyo.ttf",
        },
    ),
    (
        DebianPackage(
            "fonts-aoyagi-kouzan-t",
            "20160404-6",
            "6e961f85ca7cd69e9357666db55f3409bea3619abc123cb3a168823e55a2a90d",
        ),
        "public domain",
        {"aoyagi": "truetype/aoyagi-kouzan-t/AoyagiKouzanT.ttf"},
    ),
    (
        DebianPackage(
            "fonts-kiloji",
            "1:2.1.0-25",
            "d80100f41da216751b3d80a27dd573d12a5cde02d883d2867d866e6895527c6e",
        ),
        "BSD-3-Clause",
        {"kiloji": "truetype/kiloji/kiloji.ttf"},
    ),
    (
        DebianPackage(
            "fonts-smiley-sans",
            "1.1.1-1",
            "ee62aac9a4b1dc3a5b414946fbcba5480dc557fe8ac0368342bcb9403e0f5156",
        ),
        "OFL-1.1",
        {"smiley": "truetype/smiley-sans/SmileySans-Oblique.ttf"},
    ),
    (
        DebianPackage(
            "fonts-arphic-gbsn00lp",
            "2.11-16",
            "f3d0e32e0c938796f983cf4a9735c31c680c66fcdc3a6107098d5605b51d744b",
        ),
        "Arphic",
        {"sungti": "truetype/arphic-gbsn00lp/gbsn00lp.ttf"},
    ),
    (
        DebianPackage(
            "fonts-reggae",
            "1.000-20210120-2",
            "8fa9711914c8687397d795384b4a72bee33f22dfba8aed2ed84a5c3bf2b69f4f",
        ),
        "OFL-1.1",
        {"reggae": "truetype/reggae/ReggaeOne-Regular.ttf"},
    ),
    (
        DebianPackage(
            "fonts-motoya-l-cedar",
            "1.01-5",
            "e107f9eca4c82752feed9917311a5dee8a98d7c762ca824d85b40cbf32e53cd1",
        ),
        "Apache-2.0",
        {"motoya-cedar": "truetype/motoya-l-cedar/MTLc3m.ttf"},
    ),
    (
        DebianPackage(
            "fonts-motoya-l-maruberi",
            "1.01-5",
            "22af24c8dd84ace4709b4a8e899f81e8d290c0c36c0f43c49af2c185c9988c31",
        ),
        "Apache-2.0",
        {"motoya-maruberi": "truetype/motoya-l-maruberi/MTLmr3m.ttf"},
    ),
    (
        DebianPackage(
            "fonts-kanjistrokeorders",
            "4.003~dfsg-1",
            "e90f1f37f84c4741f1cba873fe0df000c3b2c9ad66e9b0a757096f73c8883045",
        ),
        "BSD-3-Clause",
        {"stroke-orders": "truetype/kanjistrokeorders/KanjiStrokeOrders_v4.003.ttf"},
    ),
    (
        DebianPackage(
            "fonts-dejima-mincho",
            "227-16",
            "c86e6a7e9e54708ea9c0daa9ca321746890ab6d7c08493de65f3b90d9fa9100d",
        ),
        "MIT",
        {"dejima": "truetype/dejima-mincho/dejima-mincho-r227.ttf"},
    ),
    (
        DebianPackage(
            "fonts-baekmuk",
            "2.2-13",
            "19dbd99e597a35c8f63a36b3e880d8f3df61099e1cb92c5744146240fc4bee55",
        ),
        "Baekmuk (as MIT)",
        {
            "baekmuk-batang": "truetype/baekmuk/batang.ttf",
            "baekmuk-dotum": "truetype/baekmuk/dotum.ttf",
            "baekmuk-gulim": "truetype/baekmuk/gulim.ttf",
        },
    ),
    (
        DebianPackage(
            "fonts-unfonts-core",
            "1:1.0.2-080608-18",
            "aa3674928f81920dff1705f9948d29ff86e73f56500a55ba00f093d2f724c7bb",
        ),
        "GPL-2",
        {
            "un-batang": "truetype/unfonts-core/UnBatang.ttf",
            "un-dotum": "truetype/unfonts-core/UnDotum.ttf",
            "un-gungseo": "truetype/unfonts-core/UnGungseo.ttf",
        },
    ),
    (
        DebianPackage(
            "fonts-sawarabi-gothic",
            "20161015-4",
            "2fe2add38a94ba26a86f18727583821201f8f46691ebb1c01e85b9f2b236cb96",
        ),
        "CC-BY-3.0",
        {"sawarabi-gothic": "truetype/sawarabi-gothic/sawarabi-gothic-medium.ttf"},
    ),
    (
        DebianPackage(
            "fonts-sawarabi-mincho",
            "20220815-1",
            "a63cca0c7da5d6de86824060c79ee4628beea54f701a8f49196d73337d01d5e7",
        ),
        "CC-BY-SA-3.0 or OFL-1.1",
        {"sawarabi-mincho": "truetype/sawarabi-mincho/sawarabi-mincho-medium.ttf"},
    ),
)
_INDICES = {"noto-sans": 2, "noto-serif": 2}  # simplified Chinese; 0 for all others

GLYPH_FONTS = tuple(
    GlyphFont(name, package, _FONTS + file, terms, _INDICES.get(name, 0))
    for package, terms, files in _TABLE
    for name, file in files.items()
)
"""In the order in which `fonts` of `build_glyphs` takes them."""
